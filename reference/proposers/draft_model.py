"""Drafting by a smaller model with the target's vocabulary (Leviathan et al. 2023; Chen et al. 2023)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from verispec.reference.models.attention import PagedBatch
from verispec.reference.models.kv_cache import KVCache

from .chain import ChainProposer


class DraftModelProposer(ChainProposer):
    """Drafts by a causal model loaded with ``verispec_paged`` attention; see `ChainProposer` for `options`."""

    def __init__(self, model: nn.Module, cache: KVCache, **options: Any) -> None:
        super().__init__(cache, shift=False, **options)
        self._model = model

    def _run(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        hidden: torch.Tensor | None,
        paged: PagedBatch,
        rows: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        output = self._model(
            input_ids=token_ids[None],
            position_ids=positions[None],
            logits_to_keep=0 if rows is None else rows,
            use_cache=False,
            paged=paged,
        )
        return output.logits[0], None

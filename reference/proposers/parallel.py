"""Parallel drafting: all K draft tokens from one pass of a draft model (An et al. 2025, "PARD").

Behind the token that the target sampled stand K - 1 mask tokens. The row of the sampled token gives the first draft
token, the row of mask token j the draft token after it. A draft token therefore does not depend on those before it. The
next step reads the tokens that the target verified and writes over the keys of mask tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from verispec.reference.models.kv_cache import KVCache

from .draft_model import DraftModelProposer
from .protocol import VerifiedStep


class ParallelProposer(DraftModelProposer):
    """Drafts by a model that was trained with mask tokens; see `ChainProposer` for `options`.

    Args:
        model: causal model loaded with ``verispec_paged`` attention.
        cache: the model's own KV cache.
        mask_id: its mask token.
        **options: options of `ChainProposer`.
    """

    def __init__(self, model: nn.Module, cache: KVCache, mask_id: int, **options: Any) -> None:
        super().__init__(model, cache, **options)
        self._mask_id = mask_id

    def draft(self, step: VerifiedStep) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the draft tokens of `propose`, [B, K], and their distributions [B, K, V] if some were drawn."""
        batch_size, num_drafts = len(step.query_lens), step.depth
        logits, _, followed = self._read(step, max(num_drafts, 1), self._mask_id)
        if not num_drafts:
            return step.token_ids.new_empty((batch_size, 0)), None
        rows = logits.view(batch_size, num_drafts, -1)
        drawn = [self._draw(step.draw, rows[:, ahead], followed, ahead) for ahead in range(num_drafts)]
        probs = [row for _, row in drawn if row is not None]
        token_ids = torch.stack([ids for ids, _ in drawn], dim=1)
        return token_ids, torch.stack(probs, dim=1) if probs else None

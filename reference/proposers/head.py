"""Autoregressive drafting by a head from the target's hidden states: Eagle3 (Li et al. 2025), or an MTP layer."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from verispec.reference.models.attention import PagedBatch
from verispec.reference.models.kv_cache import KVCache

from .chain import ChainProposer
from .protocol import VerifiedStep


class Head(Protocol):
    """The methods of a head that a proposer calls; see `Eagle3Head` and `MTPHead`."""

    def combine(self, aux: torch.Tensor, /) -> torch.Tensor:
        """Map auxiliary states to hidden states."""

    def __call__(
        self, input_ids: torch.Tensor, hidden: torch.Tensor, position_ids: torch.Tensor, *, paged: PagedBatch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the layer over the rows of a batch."""

    def logits(self, normed: torch.Tensor, /) -> torch.Tensor:
        """Map normalised hidden states to draft logits."""

    def to_target(self, draft_ids: torch.Tensor) -> torch.Tensor:
        """Map ids of the draft vocabulary to ids of the target's."""

    def target_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """Map draft logits to the target's vocabulary."""


class HeadProposer(ChainProposer):
    """Drafts by a head set to ``verispec_paged`` attention; see `ChainProposer` for `options`."""

    def __init__(self, head: Head, cache: KVCache, **options: Any) -> None:
        super().__init__(cache, shift=True, **options)
        self._head = head

    def _first_hidden(self, step: VerifiedStep) -> torch.Tensor:
        assert step.aux_hidden_states is not None
        return self._head.combine(step.aux_hidden_states)

    def _run(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        hidden: torch.Tensor | None,
        paged: PagedBatch,
        rows: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        assert hidden is not None
        normed, following = (
            states[0] if rows is None else states[0].index_select(0, rows)
            for states in self._head(token_ids[None], hidden[None], positions[None], paged=paged)
        )
        return self._head.logits(normed), following

    def _to_target(self, draft_ids: torch.Tensor) -> torch.Tensor:
        return self._head.to_target(draft_ids)

    def _target_logits(self, logits: torch.Tensor) -> torch.Tensor:
        return self._head.target_logits(logits)

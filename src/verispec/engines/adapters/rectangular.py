"""Batches of engines whose requests have the same number of drafts: one group per number."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from verispec.engines import SamplerBatch


@dataclass(frozen=True)
class Group:
    """Requests of a step with the same number of drafts.

    Attributes:
        requests: [G] places in the batch.
        count: drafts of each, k.
        logits: [G, k + 1, V], a copy.
        drafts: [G, k] int64.
        draft_probs: [G, k, V]; None without draft probabilities.
    """

    requests: list[int]
    count: int
    logits: torch.Tensor
    drafts: torch.Tensor
    draft_probs: torch.Tensor | None

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """Return the group's part [G, ...] of a tensor with one entry per request."""
        return values[self.requests]


def by_groups(batch: SamplerBatch, verify: Callable[[Group], Sequence[Sequence[int]]]) -> list[list[int]]:
    """Return the tokens of each request of a ragged batch.

    Args:
        batch: one step.
        verify: function of a group to the tokens of its requests.
    """
    alike: defaultdict[int, list[int]] = defaultdict(list)
    for request, count in enumerate(batch.counts):
        alike[count].append(request)
    rows, drafts = (list(itertools.accumulate((k + extra for k in batch.counts), initial=0)) for extra in (1, 0))
    emitted: list[list[int]] = [[] for _ in batch.counts]
    for count, requests in alike.items():
        at = [rows[b] + j for b in requests for j in range(count + 1)]
        probs = batch.draft_probs
        if probs is not None:
            chosen = [drafts[b] + j for b in requests for j in range(count)]
            probs = probs[chosen].reshape(len(requests), count, batch.vocab_size)
        group = Group(
            requests,
            count,
            batch.logits[at].reshape(len(requests), count + 1, -1),
            torch.tensor([batch.draft_token_ids[b] for b in requests], dtype=torch.int64).reshape(len(requests), count),
            probs,
        )
        for request, tokens in zip(requests, verify(group), strict=True):
            emitted[request] = list(tokens)
    return emitted

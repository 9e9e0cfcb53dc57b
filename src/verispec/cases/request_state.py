"""Batches of logits for the request-state family, in the shapes that break kernels.

A batch has requests with counts[b] drafts each, of which some are padding; its requests are spread over
more states than it has requests, in no order, so that an index of the wrong kind finds another request's
numbers. The terms are those of ``verispec.reference.contracts._request_state``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from verispec.reference.contracts import Contract

Array = np.ndarray[Any, Any]

PADDING_ROWS = 2
SPARE_STATES = 3


@dataclass(slots=True)
class RequestBatch:
    """The inputs of a verification, by the names of the contracts' parameters."""

    target_logits: Array
    draft_logits: Array | None
    draft_sampled: Array
    cu_num_logits: Array
    pos: Array
    idx_mapping: Array
    expanded_idx_mapping: Array
    expanded_local_pos: Array
    temperature: Array
    seed: Array

    @property
    def requests(self) -> int:
        return len(self.idx_mapping)

    @property
    def columns(self) -> int:
        """Sampled tokens a request at most: its drafts and one more."""
        return max([1, *map(int, np.diff(self.cu_num_logits))])

    def drafts(self, b: int) -> int:
        """Drafts of request b; -1 for padding."""
        return int(self.cu_num_logits[b + 1] - self.cu_num_logits[b]) - 1

    def row(self, b: int, step: int) -> int:
        return int(self.cu_num_logits[b]) + step

    def arguments(self, contract: Contract, **more: Any) -> dict[str, Any]:
        """What `contract` has a parameter for, and `more`."""
        names = {p.name for p in contract.params}
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name in names} | more


def random_requests(
    rng: np.random.Generator,
    counts: Sequence[int],
    vocab: int,
    *,
    draft: bool = True,
    temperature: float | None = None,
    draft_vocab: int | None = None,
    padding: Sequence[int] = (),
) -> RequestBatch:
    """A random batch. `temperature` is that of every request, None for a mix with greedy ones; `padding` lists
    the requests that only pad. Drafts are near the target: about half of them pass."""
    requests, width = len(counts), draft_vocab or vocab
    shared, states = min(vocab, width), requests + SPARE_STATES
    idx_mapping = rng.permutation(states)[:requests]
    idx_mapping[list(padding)] = -1
    rows = [0 if state < 0 else count + 1 for state, count in zip(idx_mapping, counts, strict=True)]
    total = sum(rows)
    expanded_idx_mapping = np.concatenate((np.repeat(idx_mapping, rows), np.full(PADDING_ROWS, -1)))
    expanded_local_pos = np.concatenate([np.arange(n) for n in rows] + [np.zeros(PADDING_ROWS, np.int64)])
    temperatures = np.asarray(
        rng.choice([0.0, 0.7, 1.0, 1.3], states) if temperature is None else np.full(states, temperature)
    )
    target_logits = normal(rng, total + PADDING_ROWS, vocab)
    draft_logits = normal(rng, states, max([1, *counts]), width)
    draft_sampled = rng.integers(0, shared, total + PADDING_ROWS)
    for row in range(total - 1):
        state, step = expanded_idx_mapping[row], expanded_local_pos[row]
        if expanded_local_pos[row + 1] == 0:
            continue
        scale = temperatures[state]
        if scale == 0.0:
            if rng.random() < 0.8:
                draft_sampled[row + 1] = target_logits[row, :shared].argmax()
            continue
        draft_logits[state, step, :shared] = target_logits[row, :shared] * scale + normal(rng, shared) * 0.2
        q = np.exp(draft_logits[state, step, :shared].astype(np.float64) / scale)
        draft_sampled[row + 1] = rng.choice(shared, p=q / q.sum())
    return RequestBatch(
        target_logits=target_logits,
        draft_logits=draft_logits if draft else None,
        draft_sampled=draft_sampled,
        cu_num_logits=np.concatenate(([0], np.cumsum(rows, dtype=np.int64))),
        pos=rng.integers(0, 2**40, total + PADDING_ROWS),
        idx_mapping=idx_mapping,
        expanded_idx_mapping=expanded_idx_mapping,
        expanded_local_pos=expanded_local_pos,
        temperature=temperatures.astype(np.float32),
        seed=rng.integers(-(2**63), 2**63 - 1, states),
    )


def select_requests(batch: RequestBatch, order: Sequence[int]) -> RequestBatch:
    """The requests `order` of a batch, in that order, as a batch of their own; states stay what they are."""
    rows = np.concatenate([np.arange(batch.row(b, 0), batch.row(b + 1, 0)) for b in order])
    ends = np.cumsum([0, *(batch.drafts(b) + 1 for b in order)])
    by_row = ("target_logits", "draft_sampled", "pos", "expanded_idx_mapping", "expanded_local_pos")
    chosen = {name: getattr(batch, name)[rows].copy() for name in by_row}
    return replace(batch, cu_num_logits=ends, idx_mapping=batch.idx_mapping[list(order)], **chosen)


def normal(rng: np.random.Generator, *shape: int) -> Array:
    """Logits in float32 with a spread like that of a model's."""
    return (rng.standard_normal(shape) * 3).astype(np.float32)

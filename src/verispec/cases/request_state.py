"""Slot-indexed batches of logits in the shapes that break kernels.

Request b has counts[b] draft tokens, or is padding. The requests occupy random slots among more slots than requests, so
that an index of the wrong kind reads another request's values. ``verispec.reference.contracts._request_state`` defines
the terms.
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
_TOGETHER = 2**20
"""Logits that are made at once: 8 MB in float64."""


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
        """The number of requests, padding included."""
        return len(self.idx_mapping)

    @property
    def columns(self) -> int:
        """The maximum number of tokens per request: its draft tokens and one more."""
        return max([1, *map(int, np.diff(self.cu_num_logits))])

    def drafts(self, b: int) -> int:
        """Return the number of draft tokens of request b; -1 for padding."""
        return int(self.cu_num_logits[b + 1] - self.cu_num_logits[b]) - 1

    def row(self, b: int, step: int) -> int:
        """Return the target row of request b at `step`."""
        return int(self.cu_num_logits[b]) + step

    def arguments(self, contract: Contract, **more: Any) -> dict[str, Any]:
        """Return the arguments for which `contract` has a parameter, and `more`."""
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
    spare: int | None = None,
) -> RequestBatch:
    """Return a random batch whose draft distribution is close to the target's: about half of the drafts pass.

    Args:
        rng: source of all values.
        counts: draft tokens of each request.
        vocab: vocabulary size of the target.
        draft: False omits the draft logits (one-hot drafts).
        temperature: temperature of every request, None for a mix that includes greedy requests.
        draft_vocab: vocabulary size of the draft, None for the target's.
        padding: requests that are padding.
        spare: rows after the last request's, which no engine's verification has; None for two in a batch of an odd
            number of requests, since a kernel must know the last row by itself. A batch without rows has two.
    """
    requests, width = len(counts), draft_vocab or vocab
    shared, states = min(vocab, width), requests + SPARE_STATES
    idx_mapping = rng.permutation(states)[:requests]
    idx_mapping[list(padding)] = -1
    if requests > 16:
        _give_slot_0_to_a_late_request(idx_mapping, counts)
    rows = [0 if state < 0 else count + 1 for state, count in zip(idx_mapping, counts, strict=True)]
    total = sum(rows)
    if spare is None or not total:
        spare = PADDING_ROWS if len(counts) % 2 or not total else 0
    expanded_idx_mapping = np.concatenate((np.repeat(idx_mapping, rows), np.full(spare, -1)))
    expanded_local_pos = np.concatenate([np.arange(n) for n in rows] + [np.zeros(spare, np.int64)])
    temperatures = np.asarray(
        rng.choice([0.0, 0.7, 1.0, 1.3], states) if temperature is None else np.full(states, temperature)
    )
    target_logits = normal(rng, total + spare, vocab)
    draft_logits = normal(rng, states, max([1, *counts]), width)
    draft_sampled = rng.integers(0, shared, total + spare)
    before_draft = np.flatnonzero(expanded_local_pos[1:total])
    scales = temperatures[expanded_idx_mapping[before_draft]]
    greedy = before_draft[(scales == 0.0) & (rng.random(len(scales)) < 0.8)]
    draft_sampled[greedy + 1] = target_logits[greedy, :shared].argmax(axis=1)
    drawn = before_draft[scales > 0.0]
    for rows_of_part in np.array_split(drawn, max(len(drawn) * shared // _TOGETHER, 1)):
        states_of_part, steps = expanded_idx_mapping[rows_of_part], expanded_local_pos[rows_of_part]
        scale = temperatures[states_of_part, None].astype(np.float32)
        own = target_logits[rows_of_part, :shared] * scale + normal(rng, len(rows_of_part), shared) * np.float32(0.2)
        draft_logits[states_of_part, steps, :shared] = own
        cumulative = np.cumsum(np.exp((own / scale).astype(np.float64)), axis=1)
        bound = rng.random((len(rows_of_part), 1)) * cumulative[:, -1:]
        draft_sampled[rows_of_part + 1] = (cumulative <= bound).sum(axis=1).clip(max=shared - 1)
    return RequestBatch(
        target_logits=target_logits,
        draft_logits=draft_logits if draft else None,
        draft_sampled=draft_sampled,
        cu_num_logits=np.concatenate(([0], np.cumsum(rows, dtype=np.int64))),
        pos=rng.integers(0, 2**40, total + spare),
        idx_mapping=idx_mapping,
        expanded_idx_mapping=expanded_idx_mapping,
        expanded_local_pos=expanded_local_pos,
        temperature=temperatures.astype(np.float32),
        seed=rng.integers(-(2**63), 2**63 - 1, states),
    )


def _give_slot_0_to_a_late_request(idx_mapping: Array, counts: Sequence[int]) -> None:
    """Let the last request with several rows have slot 0, as a wrong comparison with 0 shows there alone."""
    late = [b for b, count in enumerate(counts) if count > 0 and idx_mapping[b] >= 0][-1:]
    idx_mapping[(idx_mapping == 0) & bool(late)] = idx_mapping[late]
    idx_mapping[late] = 0


def draft_outside(batch: RequestBatch, token: int, at: Sequence[int] | None = None) -> None:
    """Make drafts an id that is not in the vocabulary, and make the logit large that a wrong index finds.

    A negative id counts from the end of the row. An id past the end finds the row's last logit (clamped), and for every
    second row the next row's first (read beyond).

    Args:
        batch: the batch, which is changed.
        token: the id, below 0 or at least V.
        at: rows of `draft_sampled`, None for all. No row is a request's first.
    """
    rows = np.flatnonzero(batch.expanded_local_pos) if at is None else np.asarray(at)
    batch.draft_sampled[rows] = token
    found = np.full(len(rows), token) if token < 0 else np.arange(len(rows)) % 2 - 1
    batch.target_logits[rows - (found < 0), found] = 30.0


def select_requests(batch: RequestBatch, order: Sequence[int]) -> RequestBatch:
    """Return a batch of the requests `order`, in that order; states keep their slots."""
    rows = np.concatenate([np.arange(batch.row(b, 0), batch.row(b + 1, 0)) for b in order])
    ends = np.cumsum([0, *(batch.drafts(b) + 1 for b in order)])
    by_row = ("target_logits", "draft_sampled", "pos", "expanded_idx_mapping", "expanded_local_pos")
    chosen = {name: getattr(batch, name)[rows].copy() for name in by_row}
    return replace(batch, cu_num_logits=ends, idx_mapping=batch.idx_mapping[list(order)], **chosen)


def normal(rng: np.random.Generator, *shape: int) -> Array:
    """Return float32 logits of `shape` from `rng`, with a standard deviation of 3, similar to a model's."""
    return (rng.standard_normal(shape) * 3).astype(np.float32)

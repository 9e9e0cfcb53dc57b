"""Likely tokens at the edges of an implementation's blocks, and requests near temperature 0 beside others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verispec.cases.batches import Batch
from verispec.cases.request_state import RequestBatch, normal

Array = np.ndarray[Any, Any]
Rng = np.random.Generator

PEAKS = 4
"""Likely tokens of a row."""
COLD = 2.0**-10
"""A temperature near 0, by which a division is exact: logits are then thousands, as those of real models are."""
COLDEST = 2.0**-20
"""A temperature below 10^-5, which some samplers take for 0; kernels get it from none of their callers."""


def edges_of(sizes: Sequence[int], vocab: int) -> tuple[int, ...]:
    """Return the first and the last id of the first, the second and the last whole block of each size, and of V."""
    ends = {n for size in sizes for n in (size, 2 * size, vocab - vocab % size)}
    return tuple(sorted({n + step for n in {0, vocab, *ends} for step in (-1, 0) if 0 <= n + step < vocab}))


def places_of(rng: Rng, rows: int, edges: Sequence[int]) -> Array:
    """Return different edges for each row, [rows, PEAKS]."""
    return np.array([rng.permutation(edges)[:PEAKS] for _ in range(rows)], dtype=np.int64).reshape(rows, PEAKS)


def raise_logits(rng: Rng, logits: Array, edges: Sequence[int]) -> Array:
    """Make tokens at edges the likeliest of each row, all but one of every second row equal; return their ids."""
    places = places_of(rng, len(logits), edges)
    different, equal = [3.0, 2.5, 2.0, 1.5], [3.0, 2.5, 2.5, 2.5]
    more = np.where(np.arange(len(logits))[:, None] % 2, equal, different).astype(np.float32)
    np.put_along_axis(logits, places, logits.max(axis=1, keepdims=True) + more, axis=1)
    return places


def raise_probabilities(rng: Rng, batch: Batch, edges: Sequence[int]) -> None:
    """Make tokens at edges the likeliest of each row of a packed batch, and drafts of them."""
    places = places_of(rng, batch.tokens, edges)
    tables = [(batch.target_probs, [0.3, 0.2, 0.15, 0.1])]
    if batch.draft_probs is not None:
        tables.append((batch.draft_probs, [0.15, 0.25, 0.2, 0.1]))
    for probabilities, shares in tables:
        np.multiply(probabilities, 1 - sum(shares), out=probabilities)
        raised = np.take_along_axis(probabilities, places, axis=1) + shares
        np.put_along_axis(probabilities, places, raised, axis=1)
    batch.draft_token_ids = places[np.arange(batch.tokens), rng.integers(0, PEAKS, batch.tokens)]
    batch.keep_distance()


def raise_requests(rng: Rng, batch: RequestBatch, edges: Sequence[int]) -> None:
    """Make tokens at edges the likeliest of each row of target and draft, and drafts of them."""
    places = raise_logits(rng, batch.target_logits, edges)
    for row, state, step in draft_rows(batch):
        scale = float(batch.temperature[state]) or 1.0
        if batch.draft_logits is not None:
            raised = batch.target_logits[row, places[row]] * scale + normal(rng, PEAKS) * 0.2
            batch.draft_logits[state, step, places[row]] = raised
        batch.draft_sampled[row + 1] = rng.choice(places[row], p=[0.5, 0.2, 0.2, 0.1])


def cool(rng: Rng, batch: RequestBatch, temperature: float) -> None:
    """Bring every second sampled request to a temperature near 0; its drafts are the draft's argmax, as of any drafter.

    A row of theirs has one token with nearly all of the mass, in the target and in the draft, mostly the same one.
    """
    cold = set(batch.idx_mapping[1::2].tolist()) - {-1}
    cold = {state for state in cold if batch.temperature[state] > 0}
    for row, state in enumerate(batch.expanded_idx_mapping.tolist()):
        if state in cold:
            batch.target_logits[row] *= batch.temperature[state] / temperature
    batch.temperature[list(cold)] = temperature
    shared = batch.target_logits.shape[1]
    for row, state, step in draft_rows(batch):
        if state in cold and (batch.draft_logits is not None or rng.random() < 0.7):
            logits = batch.target_logits[row] if batch.draft_logits is None else batch.draft_logits[state, step]
            batch.draft_sampled[row + 1] = logits[:shared].argmax()


def draft_rows(batch: RequestBatch) -> list[tuple[int, int, int]]:
    """Return row, state and step of each draft token."""
    return [
        (batch.row(b, step), int(state), step)
        for b, state in enumerate(batch.idx_mapping)
        for step in range(max(batch.drafts(b), 0))
    ]

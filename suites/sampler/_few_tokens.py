"""Rows of which few tokens are possible, as grammars, limits and padded heads leave them."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.cases.batches import Batch

Array = np.ndarray[Any, Any]
Rng = np.random.Generator

LEFT = ("ends", "few", "range")
"""Tokens that a grammar, a limit or a padded head leaves of a row: three at an end, two to five, or a range."""


def impossible(rng: Rng, shape: tuple[int, int], left: str) -> Array:
    """Return a mask [rows, V] of the tokens that `left` leaves out; every third row keeps all of its tokens.

    Two tokens stay at least: without the draft token nothing would be left of one, and no rejection leads there.
    """
    rows, vocab = shape
    ids = np.arange(vocab)
    out = np.zeros(shape, dtype=bool)
    for row in range(rows if left else 0):
        if row % 3 == 2:
            continue
        if left == "few":
            out[row] = ~np.isin(ids, rng.choice(vocab, int(rng.integers(2, 6)), replace=False))
            continue
        begin, end = (0, 3) if rng.random() < 0.5 else (vocab - 3, vocab)
        if left == "range":
            begin = int(rng.integers(0, vocab - 1))
            end = begin + 2 + int(rng.integers(0, max(vocab // 4, 1)))
        out[row] = (ids < begin) | (ids >= end)
    return out


def leave_few(rng: Rng, batch: Batch, left: str) -> None:
    """Move the probability of impossible tokens to the others; no number is near its draft's p / q afterwards.

    Seven in ten drafts are possible, since a grammar excludes drafts before they are verified.
    """
    out = impossible(rng, batch.target_probs.shape, left)
    batch.target_probs[out] = 0.0
    for row in np.flatnonzero(out.any(axis=1) & (rng.random(batch.tokens) < 0.7)):
        batch.draft_token_ids[row] = rng.choice(np.flatnonzero(~out[row]))
    batch.target_probs /= batch.target_probs.sum(axis=1, keepdims=True)
    batch.keep_distance()

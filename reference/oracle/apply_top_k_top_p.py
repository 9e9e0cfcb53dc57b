"""Oracle of apply_top_k_top_p: the contract's clauses, executed."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.reference.oracle._request_state import clean

Array = np.ndarray[Any, Any]


def order(row: Array) -> Array:
    """Return the ids of a row by decreasing logit, and by increasing id for equal logits."""
    return np.argsort(-clean(row), kind="stable")


def probabilities_before(ordered: Array) -> Array:
    """Return, for each logit of an ordered row, the probability of the logits before it."""
    if ordered[0] == np.inf:
        weights = (ordered == np.inf).astype(np.float64)
    elif ordered[0] == -np.inf:
        return np.zeros(len(ordered))
    else:
        weights = np.exp(ordered - ordered[0])
    before: Array = np.concatenate(([0.0], np.cumsum(weights)[:-1])) / weights.sum()
    return before


def apply_top_k_top_p(*, output: Array, logits: Array, k: Array | None, p: Array | None) -> dict[str, Array]:
    masked = output.copy()
    vocabulary = logits.shape[1]
    for b, row in enumerate(logits):
        ids = order(row)
        if k is not None and 0 < k[b] < vocabulary:
            ids = ids[: k[b]]
        if p is not None and not p[b] >= 1.0:
            keep = probabilities_before(clean(row)[ids]) < p[b]
            keep[0] = True
            ids = ids[keep]
        masked[b] = -np.inf
        masked[b, ids] = clean(row)[ids]
    return {"output": masked}

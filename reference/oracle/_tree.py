"""Helpers shared by the oracles of draft trees: lists of children, walks, weights and draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from verispec.reference.oracle._rows import Array

Step = Callable[[int, int, int, bool], tuple[int | None, int]]
"""Function of a request, a node, its place and whether the path may not grow: accepted child or None, and the token."""


def children(first: Any, siblings: Array) -> Iterator[int]:
    """Yield `first` and its next siblings by the links `siblings` [D], up to the first that is no node, D at most."""
    node = int(first)
    for _ in range(len(siblings)):
        if not 0 <= node < len(siblings):
            return
        yield node
        node = int(siblings[node])


def walk(predicts: Array, accept_index: Array, accept_token_num: Array, places: Array, step: Step) -> dict[str, Array]:
    """Return the outputs of a verification that goes from each root to the child that `step` accepts.

    Args:
        predicts: tokens before the call, [B * D].
        accept_index: places before the call, [B, K + 1].
        accept_token_num: counts before the call, [B].
        places: place of each node, [B, D].
        step: decision at a node.
    """
    tokens, path, accepted = predicts.copy(), accept_index.copy(), accept_token_num.copy()
    for b in range(len(places)):
        node, count, place = 0, 0, int(places[b, 0])
        path[b, 0], accepted[b] = place, 0
        if not 0 <= place < len(tokens):
            continue
        while True:
            child, tokens[place] = step(b, node, place, count + 1 == path.shape[1])
            if child is None:
                break
            node, count, place = child, count + 1, int(places[b, child])
            path[b, count] = place
        accepted[b] = count
    return {"predicts": tokens, "accept_index": path, "accept_token_num": accepted}


def weights(row: Array) -> Array:
    """Return a row of probabilities in float64, with 0 for NaN, infinite and negative ones."""
    wide = row.astype(np.float64)
    return np.where(np.isfinite(wide) & (wide > 0), wide, 0.0)


def total(values: Array) -> float:
    """Return the sum in the order of the values."""
    return float(np.cumsum(values)[-1])


def power_of_two(number: float) -> float:
    """Return the power of two by which a product lies in [1, 2), so that scaling rounds nothing."""
    return math.ldexp(1.0, min(1 - math.frexp(number)[1], 1000))


def draw(values: Array, u: Any) -> int:
    """Return the first token whose cumulative weight exceeds u of the whole.

    Without one it is the last token with a weight, and V - 1 if there is none.
    """
    sums = np.cumsum(values)
    above = np.flatnonzero(sums > np.float64(u) * sums[-1])
    if len(above):
        return int(above[0])
    positive = np.flatnonzero(values > 0)
    return int(positive[-1]) if len(positive) else len(values) - 1

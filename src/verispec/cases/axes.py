"""Systematic values of an op's axes: sizes around an implementation's own, all pairs, and the cost of each value."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

BATCHES = (1, 2, 63, 64, 65, 66, 257)
"""Requests: one, two, around a warp's or a block's width of 64, and past a byte."""

SERIES = (1, 2, 3, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
"""Sizes that implementations without stated tiles are assumed to tile by."""


def around(sizes: Iterable[int], most: int) -> list[int]:
    """Return each size, one less and one more, up to `most`, ascending.

    Args:
        sizes: block sizes, thresholds or tile edges, in elements.
        most: the largest size that a case can afford.
    """
    near = {n + step for n in sizes for step in (-1, 0, 1)}
    return sorted(n for n in near if 0 < n <= most)


def told_sizes(implementation: Any, op: str) -> tuple[int, ...]:
    """Return the sizes at which an engine says that it changes its algorithm.

    Args:
        implementation: an engine, or anything; its optional method ``tile_sizes(op)`` returns block sizes, tile edges
            and thresholds of parallel loops.
        op: name of the op.

    Returns:
        Numbers of elements; empty without such a method.
    """
    tell = getattr(implementation, "tile_sizes", None)
    return tuple(int(n) for n in tell(op)) if callable(tell) else ()


def all_pairs(axes: Mapping[str, Sequence[Any]], seed: int = 0) -> list[dict[str, Any]]:
    """Return combinations in which every two values of two axes meet at least once.

    Greedy: each row takes the values that meet most new partners. The result depends on `seed` alone.

    Args:
        axes: values of each axis.
        seed: breaks ties.

    Raises:
        ValueError: an axis has no values.
    """
    names = list(axes)
    if not all(len(axes[name]) for name in names):
        raise ValueError(f"an axis has no values: {dict(axes)}")
    if len(names) == 1:
        return [{names[0]: value} for value in axes[names[0]]]
    rng = random.Random(seed)
    open_pairs = set(_pairs(names, {name: range(len(axes[name])) for name in names}))
    # Each value has a bit; the partners that a value has not met yet are a number.
    values = [(name, i) for name in names for i in range(len(axes[name]))]
    bits = {value: 1 << n for n, value in enumerate(values)}
    partners = dict.fromkeys(values, 0)
    for a, i, b, j in open_pairs:
        partners[a, i] |= bits[b, j]
        partners[b, j] |= bits[a, i]
    rows = []
    while open_pairs:
        first, i, second, j = min(open_pairs)
        row, met = {first: i, second: j}, bits[first, i] | bits[second, j]
        for name in rng.sample(names, len(names)):
            if name not in row:
                row[name] = max(
                    range(len(axes[name])),
                    key=lambda value: ((partners[name, value] & met).bit_count(), rng.random()),
                )
                met |= bits[name, row[name]]
        for a, b in itertools.combinations(names, 2):
            open_pairs.discard((a, row[a], b, row[b]))
        for value in row.items():
            partners[value] &= ~met
        rows.append({name: axes[name][row[name]] for name in names})
    return rows


def _pairs(names: Sequence[str], values: Mapping[str, Iterable[int]]) -> Iterator[tuple[str, int, str, int]]:
    for a, b in itertools.combinations(names, 2):
        for i, j in itertools.product(values[a], values[b]):
            yield a, i, b, j

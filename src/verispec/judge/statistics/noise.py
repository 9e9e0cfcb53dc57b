"""Resolution of an engine's random numbers: floors, grids and ties, and their effect on a distribution.

A token is the argmax of p over exponential noise. Noise that is a multiple of 2^-b never falls below 2^-b, so tokens
less likely than about 2^-b are lost. The best score of a flat row of V tokens is a tie with probability V 2^-(b + 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

SMALL = 2.0**-10
"""Noise below this is small enough to show a grid, and frequent enough to be seen."""
FEWEST = 200
"""Values below `SMALL` that are needed to tell a grid."""
GRIDS = range(8, 49)


@dataclass(frozen=True, slots=True)
class NoiseReport:
    """Grid, floor and repetitions of a sample of exponential noise.

    Attributes:
        values: sample size.
        smallest: the smallest value.
        grid_bits: b where all values below `SMALL` are near multiples of 2^-b; 0 where there is no grid up to 2^-48.
        repeated: fraction of the values below `SMALL` that occur more than once.
    """

    values: int
    smallest: float
    grid_bits: int
    repeated: float


def measure(noise: Array) -> NoiseReport | None:
    """Return the report of `noise`, or None where too few values are small.

    Args:
        noise: exponential noise of any shape, in the engine's dtype.

    Returns:
        The report; None with fewer than `FEWEST` values below `SMALL`.
    """
    values = np.asarray(noise, dtype=np.float64).ravel()
    small = values[values < SMALL]
    if len(small) < FEWEST:
        return None
    distinct, counts = np.unique(small, return_counts=True)
    return NoiseReport(len(values), float(values.min()), _grid(distinct), float(counts[counts > 1].sum() / len(small)))


def _grid(distinct: Array) -> int:
    """Return the coarsest grid 2^-b that holds all values, as -log(1 - k 2^-b) does: k 2^-b + (k 2^-b)^2 / 2 + ..."""
    uniform = -np.expm1(-distinct)
    for bits in GRIDS:
        cells = uniform * 2.0**bits
        # A float32 value is off by 2^-24 of itself; on a finer grid that is more than the test below can see.
        tolerance = np.maximum(cells * 2.0**-22, 1e-3)
        if tolerance.max() > 0.1:
            continue
        if (np.abs(cells - np.round(cells)) <= tolerance).all():
            return bits
    return 0


def kept_share(probability: Array | float, bits: int) -> Array:
    """Return the share of a rare token's probability that remains with noise of limited resolution.

    Args:
        probability: probability of the token, of any shape.
        bits: b of the uniform numbers (w + 1/2) 2^-b, with an integer w, that the noise is made from.

    Returns:
        x / sinh(x) with x = 2^-(b + 1) / probability, float64, in the shape of `probability`.
    """
    x = 2.0 ** -(bits + 1) / np.asarray(probability, dtype=np.float64)
    with np.errstate(over="ignore"):
        share: Array = np.where(x > 1e-6, x / np.sinh(np.minimum(x, 700.0)), 1.0)
    return share


def needles(vocab_size: int, probability: float) -> Array:
    """Return logits of a likely token, 0, and unlikely ones.

    Args:
        vocab_size: V.
        probability: probability of each of the V - 1 unlikely tokens.

    Returns:
        [V] float32.
    """
    logits = np.full(vocab_size, np.log(probability), dtype=np.float32)
    logits[0] = np.log1p(-probability * (vocab_size - 1))
    return logits

"""Places of tokens in their distributions, and evidence that they are not uniform.

The randomised probability integral transform of a token drawn from its stated distribution is uniform, for any
vocabulary. Sixteen cells of it are compared with uniform cells by Dirichlet-multinomial mixtures: each mixture is a
likelihood ratio, hence evidence at every sample size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import gammaln

Array = np.ndarray[Any, Any]

CELLS = 16
CONCENTRATIONS = tuple(float(2**k) for k in range(4, 22, 2))
"""Total concentrations of the mixtures, from coarse deviations (16) to fine ones (2^20)."""


def randomiser(seed: int) -> np.random.Generator:
    """Return the generator of randomised places for a case with this `seed`.

    It is independent of `numpy.random.default_rng(seed)`, from which a case draws its rows and drafts: places are
    uniform only under numbers that nothing else has used.
    """
    return np.random.default_rng([seed, CELLS])


def cumulative_before(weights: Array, key: Array) -> Array:
    """Return, per row of `weights` [..., V], the mass of the tokens that come before each one in order of `key`."""
    order = np.argsort(key, axis=-1, kind="stable")
    ordered = np.take_along_axis(weights, order, -1)
    before = np.empty(weights.shape)
    np.put_along_axis(before, order, np.cumsum(ordered, -1) - ordered, -1)
    return before


def mass_before(weights: Array, key: Array, t: Array) -> Array:
    """Return `cumulative_before(weights, key)` at one token of each row.

    Args:
        weights: [n, V] masses.
        key: [n, V] order of the tokens; equal keys are in order of their ids.
        t: [n] token ids.

    Returns:
        [n] float64.
    """
    own = np.take_along_axis(key, t[:, None], 1)
    is_before = (key < own) | ((key == own) & (np.arange(key.shape[1]) < t[:, None]))
    before: Array = np.einsum("nv,nv->n", weights, is_before.astype(np.float64))
    return before


def cells_of(before: Array, mass: Array, uniform: Array) -> Array:
    """Return the cell of each randomised place `before + uniform * mass`.

    Args:
        before: mass of all tokens that come before the emitted one.
        mass: probability of the emitted token.
        uniform: random numbers in [0, 1).

    Returns:
        int64 in 0..15, of the arguments' common shape.
    """
    place = np.clip(before + uniform * mass, 0.0, np.nextafter(1.0, 0.0))
    cells: Array = (place * CELLS).astype(np.int64)
    return cells


def log_evidence(counts: Array) -> Array:
    """Return log(mixture / uniform) of `counts` [..., cells] against equally likely cells; shape [...]."""
    cells = counts.shape[-1]
    total = counts.sum(-1)[..., None]
    s = np.array(CONCENTRATIONS)
    a = s / cells
    parts = gammaln(s) - gammaln(total + s) + gammaln(counts[..., None] + a).sum(-2) - cells * gammaln(a)
    evidence: Array = logsumexp(parts + total * np.log(cells)) - np.log(len(s))
    return evidence


def logsumexp(logs: Array) -> Array:
    """Return log(sum(exp(logs))) over the last axis; minus infinity where all are."""
    top = logs.max(-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        summed: Array = np.log(np.exp(logs - top).sum(-1)) + top[..., 0]
    return summed


class PlaceView:
    """Counts of places in one order; `after` splits them by the cell of an earlier token.

    A view over pairs holds one mixture per earlier cell, so overlapping pairs are valid: given the earlier place, the
    later one is uniform.
    """

    def __init__(self, name: str, paired: bool = False) -> None:
        self.name = name
        self.paired = paired
        self.counts = np.zeros((4, 4) if paired else (1, CELLS))
        self._log_evidence: float | None = 0.0

    def add(self, cells: Array, after: Array | None = None) -> None:
        """Count `cells` [n] in 0..15; a paired view also needs `after` [n], the cells of the earlier tokens."""
        self._log_evidence = None
        if after is None:
            self.counts[0] += np.bincount(cells, minlength=CELLS)
        else:
            np.add.at(self.counts, (after // 4, cells // 4), 1)

    @property
    def log_evidence(self) -> float:
        """Sum over all rows of counts of the log evidence against uniform places."""
        if self._log_evidence is None:
            self._log_evidence = float(np.sum(log_evidence(self.counts)))
        return self._log_evidence

    def table(self) -> list[dict[str, Any]]:
        """Return observed and expected count of every cell, for reports: a correct sampler fills all cells alike."""
        rows = []
        for after, counts in enumerate(self.counts):
            expected = counts.sum() / len(counts)
            for cell, count in enumerate(counts):
                rows.append(
                    {
                        "cell": f"{after} then {cell}" if self.paired else str(cell),
                        "observed": int(count),
                        "expected": round(float(expected), 1),
                        "deviation": round(float((count - expected) / np.sqrt(max(expected, 1.0))), 1),
                    }
                )
        return rows

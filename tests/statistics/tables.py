"""Probabilities that the G-test fails draws from its own distribution: enumerated, or by importance sampling."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import gammaln, xlogy
from scipy.stats import chi2

from verispec.judge.statistics import MARGIN, g_test, williams
from verispec.judge.statistics.budget import p_value_level

Array = np.ndarray[Any, Any]
DRAWS = 20_000
"""Tables of an importance sample, which leave a relative error of about 5 %."""


def enumerated(expected: Sequence[float]) -> float:
    """Return the probability that a table of few cells and draws fails, as a multiple of the level of one p-value."""
    exact = np.asarray(expected, dtype=np.float64)
    draws, level, total = round(exact.sum()), p_value_level(), 0.0
    for rest in itertools.product(range(draws + 1), repeat=len(exact) - 1):
        seen = np.array([*rest, draws - sum(rest)], dtype=np.float64)
        if seen[-1] >= 0 and g_test(seen, exact)[1] < level:
            total += float(np.exp(log_probability(seen[None], exact / draws)[0]))
    return total / level


def sampled(expected: Sequence[float], seed: int = 0) -> dict[str, float]:
    """Return the probabilities that a table of three or more cells fails, as multiples of the level of one p-value.

    Tables are drawn from a Dirichlet-multinomial distribution whose mean G is about the critical value.

    Returns:
        plain: without correction and margin; corrected: without margin; tested: as `g_test` decides.
    """
    exact = np.asarray(expected, dtype=np.float64)
    cells, draws, level = len(exact), round(exact.sum()), p_value_level()
    critical, rng = float(chi2.isf(level, cells - 1)), np.random.default_rng(seed)
    spread = critical / (cells - 1)
    concentration = max((draws - spread) / (spread - 1), 1.0)
    a = concentration * exact / draws
    limits = {"plain": critical, "corrected": critical * williams(exact)}
    limits["tested"] = float(chi2.isf(level / MARGIN, cells - 1)) * williams(exact)
    totals, done = dict.fromkeys(limits, 0.0), 0
    while done < DRAWS:
        weights = rng.gamma(a, size=(min(DRAWS - done, 4_000_000 // cells), cells)) + 1e-280
        seen = rng.multinomial(draws, weights / weights.sum(axis=1, keepdims=True)).astype(np.float64)
        g = 2.0 * xlogy(seen, seen / exact).sum(axis=1)
        proposed = gammaln(concentration) - gammaln(draws + concentration)
        proposed = proposed + gammaln(draws + 1) + (gammaln(seen + a) - gammaln(a) - gammaln(seen + 1)).sum(axis=1)
        ratio = np.exp(log_probability(seen, exact / draws) - proposed)
        for name, limit in limits.items():
            totals[name] += float(ratio[g > limit].sum())
        done += len(seen)
    return {name: total / DRAWS / level for name, total in totals.items()}


def log_probability(seen: Array, probabilities: Array) -> Array:
    """Return the log of the multinomial probability of each row of `seen` [n, cells]."""
    own: Array = gammaln(seen.sum(axis=1) + 1) + (xlogy(seen, probabilities) - gammaln(seen + 1)).sum(axis=1)
    return own


def equal(cells: int, each: float = 10.0) -> list[float]:
    """Return a table of equally likely cells."""
    return [each] * cells


def beside_a_large_one(cells: int, draws: int = 3000) -> list[float]:
    """Return a table whose cells expect 10 each, but for one that has the other draws."""
    return [10.0] * (cells - 1) + [draws - 10.0 * (cells - 1)]

"""Statistical tests with one false-alarm budget per run (`budget`).

Evidence (`evidence`, `given_drafts`, `block_rule`, `text`, `rates`) is preferred to p-values: it names the fault, holds
at every sample size, and says what a pass excludes. `assert_distribution` serves short enumerable texts, and `fits`
ends their samples early.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verispec.judge._failure import Failure, Inconclusive, Kind, Mismatch
from verispec.judge.statistics.budget import p_value_level

FEWEST_EXPECTED = 10
"""Minimum expected count of a cell, below which the chi-square approximation of a G-test is not trusted."""
MARGIN = 4
"""Factor by which the chi-square distribution may understate the tail of a corrected G at the level of a run.

By enumeration it does so by 2.7 at most, for three cells and about 55 draws; see docs/explanation/statistics.md.
"""
FITTING = 0.2
"""P-value of a third of a sample above which the rest is not drawn.

To end early fails nothing, so that the level of the test at the end holds. It costs at most 0.01 of the chance to find
a fault; see docs/explanation/statistics.md."""


def assert_distribution(counts: Sequence[int], exact: Any, what: str, names: Sequence[str] = ()) -> float:
    """Check by a G-test, or exactly for two cells, that counts are draws from a distribution.

    Cells that are too small are pooled. An outcome of probability zero that was seen fails at once; if only one outcome
    is possible, that decides, and no part of the budget is spent.

    Args:
        counts: number of draws of each outcome.
        exact: exact probability of each outcome.
        what: description of the draws, for messages.
        names: name of each outcome, where its number says nothing; the message then has the one that deviates most.

    Returns:
        The p-value.

    Raises:
        Mismatch: the p-value is below `p_value_level`.
        Inconclusive: the sample is too small.
    """
    seen, probabilities = np.asarray(counts, dtype=np.float64), np.asarray(exact, dtype=np.float64)
    impossible = np.flatnonzero((probabilities <= 0) & (seen > 0))
    if len(impossible):
        first = names[impossible[0]] if names else f"outcome {int(impossible[0])}"
        message = f"{what}: {first} has probability 0 and came {int(seen[impossible[0]])} times"
        table = {"counts": _table(counts, probabilities, names)}
        wrong, total = int(seen[impossible].sum()), int(seen.sum())
        raise Mismatch(Failure(Kind.LAW, message, wrong=wrong, total=total, details=table))
    if np.count_nonzero(probabilities) == 1 and seen.any():
        return 1.0
    seen, expected = _pooled(seen, probabilities, FEWEST_EXPECTED)
    if len(seen) < 2:
        raise Inconclusive(f"{what}: {int(seen.sum())} draws are too few for {len(probabilities)} outcomes")
    statistic, p = g_test(seen, expected)
    level = p_value_level()
    if not p >= level:
        details: dict[str, Any] = {
            "statistic": statistic,
            "degrees": len(seen) - 1,
            "p": p,
            "alpha": level,
        }
        details |= {"counts": (rows := _table(counts, probabilities, names))}
        message = f"{what}: G = {statistic:.1f} at {len(seen) - 1} degrees of freedom, p = {p:.2g} < {level:.2g}"
        if names:
            worst = max(rows, key=lambda row: abs(row["deviation"]))
            message += f"; {worst['outcome']} came {worst['observed']:,} times, expected {worst['expected']:,}"
        raise Mismatch(Failure(Kind.LAW, message, total=int(seen.sum()), details=details))
    return p


def fits(counts: Any, exact: Any, part: float) -> bool:
    """Return True if a part of a sample fits its distribution so well that the rest may be left out.

    It has the cells of the whole sample, so that a fault of small ones shows in it too. No part of the budget is spent.

    Args:
        counts: number of draws of each outcome.
        exact: exact probability of each outcome.
        part: fraction of the whole sample, above 0 and at most 1.
    """
    seen, probabilities = np.asarray(counts, dtype=np.float64), np.asarray(exact, dtype=np.float64)
    if not seen.any() or seen[probabilities <= 0].any():
        return False
    seen, expected = _pooled(seen, probabilities, FEWEST_EXPECTED * part)
    if len(seen) < 2:
        return int(np.count_nonzero(probabilities)) == 1
    from scipy.special import chdtrc, xlogy

    statistic = 2.0 * float(xlogy(seen, seen / expected).sum()) / williams(expected)
    return float(chdtrc(len(seen) - 1, statistic)) > FITTING


def g_test(seen: Any, expected: Any) -> tuple[float, float]:
    """Return Williams' corrected G of a table, and a p-value that is not too small at the level of a run.

    Two cells have the exact p-value of a binomial test, as few counts leave large steps between its values.

    Args:
        seen: counts, [cells].
        expected: expected counts, each at least `FEWEST_EXPECTED`.
    """
    from scipy.special import chdtrc, xlogy

    statistic = 2.0 * float(xlogy(seen, seen / expected).sum()) / williams(expected)
    if len(seen) == 2:
        draws = int(seen.sum())
        return statistic, binomial_p_value(int(seen[0]), draws, float(expected[0] / expected.sum()))
    return statistic, min(MARGIN * float(chdtrc(len(seen) - 1, statistic)), 1.0)


def binomial_p_value(seen: int, draws: int, p: float) -> float:
    """Return the probability of all numbers of successes that are no likelier than `seen`: the exact two-sided test.

    Here and below, not from `scipy.stats`, whose import takes a second of every process.

    Args:
        seen: number of successes.
        draws: number of trials.
        p: probability of a success.
    """
    from scipy.special import gammaln, xlog1py, xlogy

    k = np.arange(draws + 1)
    ways = gammaln(draws + 1) - gammaln(k + 1) - gammaln(draws - k + 1)
    logs = ways + xlogy(k, p) + xlog1py(draws - k, -p)
    equal = 1e-7  # of two probabilities that rounding alone keeps apart
    return min(float(np.exp(logs[logs <= logs[seen] + equal]).sum()), 1.0)


def binomial_tail(least: int, draws: int, p: float) -> float:
    """Return the probability of at least `least` successes in `draws` trials of probability `p`."""
    from scipy.special import betainc

    if least <= 0:
        return 1.0
    return float(betainc(least, draws - least + 1, p)) if least <= draws else 0.0


def williams(expected: Any) -> float:
    """Return the divisor that gives G the mean of its chi-square distribution (Williams 1976, Biometrika 63)."""
    cells = len(expected)
    return 1.0 + float((1.0 / expected).sum() - 1.0 / expected.sum()) / (6.0 * (cells - 1))


TABLE = 32
"""Outcomes that a failure lists: those that deviate most."""


def _table(counts: Sequence[int], probabilities: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return observed and expected count of each outcome, in the order of outcomes, with the standardised deviation."""
    seen = np.asarray(counts, dtype=np.float64)
    expected = probabilities / probabilities.sum() * seen.sum()
    deviation = (seen - expected) / np.sqrt(np.maximum(expected, 1.0))
    kept = np.sort(np.argsort(-np.abs(deviation), kind="stable")[:TABLE])
    return [
        {
            "outcome": names[i] if names else int(i),
            "observed": int(seen[i]),
            "expected": round(float(expected[i]), 1),
            "deviation": round(float(deviation[i]), 1),
        }
        for i in kept
    ]


def _pooled(seen: Any, probabilities: Any, fewest: float) -> tuple[Any, Any]:
    """Return counts and expected counts of the cells that expect `fewest` draws, with all others as one."""
    expected = probabilities / probabilities.sum() * seen.sum()
    large = expected >= fewest
    seen = np.append(seen[large], seen[~large].sum())
    expected = np.append(expected[large], expected[~large].sum())
    return (seen, expected) if expected[-1] >= fewest else _merge_last(seen, expected)


def _merge_last(seen: Any, expected: Any) -> tuple[Any, Any]:
    """Add the pooled rest to the smallest cell that stands alone."""
    if len(seen) == 1:
        return seen, expected
    smallest = int(np.argmin(expected[:-1]))
    seen[smallest] += seen[-1]
    expected[smallest] += expected[-1]
    return seen[:-1], expected[:-1]

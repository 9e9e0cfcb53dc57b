"""After a failed test of a distribution: the one mistake whose own distribution fits what was drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verispec.engines import UnsupportedCall
from verispec.judge._explained import ALTERNATIVELY, FAULT
from verispec.judge._failure import Inconclusive, Kind, Mismatch
from verispec.judge.statistics import FEWEST_EXPECTED, _pooled, assert_distribution, g_test

AS_IF = "as if "
"""As in `verispec.run.record`."""
FITS = 0.01
"""P-value from which a mistake's distribution fits. One that was made does with a chance of 0.99."""
EXCLUDED = 1e-6
"""P-value below which a mistake's distribution is excluded, as all must be but the one that is named."""
SAME = 1e-9
"""Total variation distance of distributions that are one."""
MOST = 2
"""Mistakes that a message names where no sample tells them apart; of more than these it names none."""
FURTHER = 6
"""Further samples at most that tell mistakes apart."""


@dataclass(frozen=True)
class Sample:
    """Draws of outcomes, and the distributions that they may have.

    Attributes:
        counts: number of draws of each outcome.
        exact: exact probability of each outcome.
        mistakes: function that returns the probabilities by the mistake that gives them, in words to follow "as if"; a
            failure alone needs them.
    """

    counts: Sequence[int]
    exact: Any
    mistakes: Callable[[], Mapping[str, Any]]


def assert_law(
    sample: Sample, what: str, names: Sequence[str] = (), further: Callable[[], Sample] | None = None
) -> float:
    """Check draws as `assert_distribution` does; a failure names the mistake that they fit, if there is one.

    Args:
        sample: the draws.
        what: description of the draws, for messages.
        names: name of each outcome.
        further: function that draws another sample, to tell mistakes apart after a failure.
    """
    try:
        return assert_distribution(sample.counts, sample.exact, what, names)
    except Mismatch as mismatch:
        failure = mismatch.failure
        named, told = fitting(sample, further) if failure.kind is Kind.LAW else ("", "")
        if not named:
            raise
        message = f"{what} come {AS_IF}{named} ({told}); {failure.message.removeprefix(f'{what}: ')}"
        details = {**failure.details, FAULT: named}
        raise Mismatch(replace(failure, message=message, details=details)) from None


def fitting(sample: Sample, further: Callable[[], Sample] | None = None) -> tuple[str, str]:
    """Return the mistake whose law fits where the laws of all others are excluded, and its p-value; else nothing.

    A mistake with the right law tells nothing about a wrong sample.
    """
    laws = {words: law for words, law in sample.mistakes().items() if _distance(law, sample.exact) > SAME}
    p_values = {words: p for words, law in laws.items() if (p := p_value(sample.counts, law)) >= EXCLUDED}
    samples = 1
    try:
        while further is not None and len(p_values) > 1 and samples <= FURTHER:
            other = further()
            others, samples = other.mistakes(), samples + 1
            told = {words: p_value(other.counts, others[words]) if words in others else 0.0 for words in p_values}
            p_values = {words: min(p, told[words]) for words, p in p_values.items() if told[words] >= EXCLUDED}
    except (Mismatch, UnsupportedCall, Inconclusive):  # the failure that is known tells more
        return "", ""
    least = min(p_values.values(), default=0.0)
    if samples * least < FITS or len(p_values) > MOST or (len(p_values) > 1 and len(set(p_values.values())) > 1):
        return "", ""
    others_left = len(laws) - len(p_values)
    rest = f"; p < {EXCLUDED:g} for {others_left} other mistake{'s' * (others_left > 1)}" if others_left else ""
    return ALTERNATIVELY.join(p_values), f"p = {least:.2g}{rest}"


def p_value(counts: Sequence[int], exact: Any) -> float:
    """Return the p-value of draws under a distribution: 0 for an impossible outcome, 1 where one cell is left."""
    seen, probabilities = np.asarray(counts, dtype=np.float64), np.asarray(exact, dtype=np.float64)
    if seen[probabilities <= 0].any():
        return 0.0
    seen, expected = _pooled(seen, probabilities, FEWEST_EXPECTED)
    return 1.0 if len(seen) < 2 else g_test(seen, expected)[1]


def _distance(first: Any, second: Any) -> float:
    return float(np.abs(np.asarray(first) - np.asarray(second)).sum() / 2)

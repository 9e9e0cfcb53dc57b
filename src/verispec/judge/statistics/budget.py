"""The false-alarm budget of a run: every statistical test has a weight, and the weights sum to at most 1.

A run fails when the weighted sum of its evidence reaches 1 / LEVEL. That sum has an expectation of at most 1 for a
correct engine, whatever the dependence between tests. So a run raises a false alarm with a probability of at most LEVEL
(Markov's inequality; arXiv 1912.06116). A test that fails on a p-value counts as the evidence 1 / (weight LEVEL).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from verispec.errors import VerispecError

LEVEL = 1e-6
"""Probability that a run of a correct engine fails on any statistical test."""


@dataclass(frozen=True, slots=True)
class Share:
    """Part of the budget that all cases of one clause spend together.

    Attributes:
        part: fraction of the budget, from 0 to 1.
        cases: number of cases that share it; a self-test compares it with the suites.
    """

    part: float
    cases: int


SHARES: dict[str, Share] = {
    "sampler/whole_sampler:WS-10": Share(0.30, 51),
    "sampler/whole_sampler:WS-11": Share(0.03, 12),
    "sampler/whole_sampler:WS-14": Share(0.05, 3),
    "synthetic/whole_sampler:WS-12": Share(0.04, 6),
    "e2e/sampled:GEN-5": Share(0.08, 23),
    "e2e/witness:GEN-6": Share(0.12, 14),
    "e2e/sampled:GEN-7": Share(0.03, 12),
    "e2e/served_text:SRV-2": Share(0.015, 7),
    "e2e/served_answers:SRV-8": Share(0.005, 1),
}
"""Shares of tests by evidence, by suite, subject and clause."""

P_VALUES = Share(0.33, 430)
"""The share of tests that decide by a p-value, e.g. frequencies of sequences of three tokens. All parts sum to 1.
`cases` is the sum over all cases of the p-values that each declares (`verispec.cases.case`)."""

_left: ContextVar[int | None] = ContextVar("p-values that the running case may still use", default=None)


@contextmanager
def allow_p_values(number: int) -> Iterator[None]:
    """Let the body use at most `number` p-values; a case of a suite runs in such a body."""
    token = _left.set(number)
    try:
        yield
    finally:
        _left.reset(token)


def p_value_level() -> float:
    """Return the level of one test that decides by a p-value, and count it.

    Raises:
        VerispecError: V-LAW-P-VALUES, where the case uses more p-values than it declares.
    """
    left = _left.get()
    if left is not None:
        if left < 1:
            raise VerispecError(
                "V-LAW-P-VALUES",
                "the case decides by more p-values than it declares",
                where="verispec.cases.case(p_values=...)",
                hint="declare them, and adapt verispec.judge.statistics.budget.P_VALUES",
            )
        _left.set(left - 1)
    return LEVEL * P_VALUES.part / P_VALUES.cases


def weight_of(case_id: str) -> float:
    """Return the weight of one case.

    Args:
        case_id: full id, e.g. ``sampler/whole_sampler:WS-10:...``.

    Returns:
        Fraction of the budget, above 0 and below 1.

    Raises:
        VerispecError: V-LAW-WEIGHT, for a case of a clause that has no share.
    """
    clause = ":".join(case_id.split(":")[:2])
    if clause not in SHARES:
        raise VerispecError(
            "V-LAW-WEIGHT",
            f"{clause} is a statistical test without a share of the budget",
            where="verispec.judge.statistics.budget.SHARES",
            hint="add its share and lower another, so that all sum to 1",
        )
    share = SHARES[clause]
    return share.part / share.cases


def merged(tests: Iterable[tuple[float, float]]) -> float:
    """Return the log of the run's evidence: the weighted sum of the evidence of all tests.

    Args:
        tests: (weight, log E) of each test.

    Returns:
        Natural logarithm; minus infinity without tests.
    """
    logs = [math.log(weight) + log_e for weight, log_e in tests]
    top = max(logs, default=-math.inf)
    if math.isinf(top):
        return top
    return top + math.log(sum(math.exp(log - top) for log in logs))

"""Requirements of unconditional_to_conditional_rates (contract U2C)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from verispec.cases import case
from verispec.judge import Mismatch, OpUnderTest
from verispec.run.record import AS_IF, FAULT

CHAINED = "a rate was divided by the conditional rate before it, and not by the configured one"
REACH = "rejection_sample_method=synthetic is an accepted configuration"


@case("U2C-1", rates=[(0.7,), (1.0, 0.5), (0.0,)], reach=REACH)
def test_the_first_rate_is_unchanged(op: OpUnderTest, rates: tuple[float, ...]) -> None:
    op.check_return_value({"rates": list(rates)})


@case("U2C-2", rates=[(0.8, 0.4, 0.1), (1.0, 1.0, 0.5), (0.3, 0.3, 0.3), (5e-4, 5e-4), (1e-3, 1e-6)], reach=REACH)
def test_each_rate_is_over_the_one_before(op: OpUnderTest, rates: tuple[float, ...]) -> None:
    """A failure says if each rate is over the result for the one before."""
    check_quotients(op, list(rates))


def check_quotients(op: OpUnderTest, rates: list[float]) -> None:
    try:
        op.check_return_value({"rates": rates})
    except Mismatch as mismatch:
        mistaken: list[float] = []
        for rate in rates:
            before = mistaken[-1] if mistaken else 1.0
            mistaken.append(rate / before if before > 0 else 0.0)
        if op.returned({"rates": rates}) != mistaken:
            raise
        message = f"{mismatch.failure.message}; {AS_IF}{CHAINED}"
        details = {**mismatch.failure.details, FAULT: CHAINED}
        raise Mismatch(replace(mismatch.failure, message=message, details=details)) from None


@case("U2C-3", rates=[(0.5, 0.0, 0.0), (0.0, 0.0), (1.0, 0.0)], reach=REACH)
def test_after_zero_every_rate_is_zero(op: OpUnderTest, rates: tuple[float, ...]) -> None:
    op.check_return_value({"rates": list(rates)})


@case("U2C-4", reach=REACH)
def test_the_argument_is_not_changed(op: OpUnderTest) -> None:
    """Other cases check what the op returns."""
    for rates in ([0.9, 0.6, 0.6, 0.1], [1.0, 0.5, 0.0, 0.0]):
        op.returned({"rates": rates})


@case("U2C-2", mode="generated", reach=REACH)
def test_generated(op: OpUnderTest, seed: int) -> None:
    """Rates of all magnitudes, down to the smallest float64; every tenth list, not the first, has many positions."""
    rng = np.random.default_rng(seed)
    for i in range(100):
        rates = np.sort(rng.random(int(rng.integers(1, 9) if i % 10 != 9 else rng.integers(33, 300))))[::-1]
        check_quotients(op, (rates * 10.0 ** -rng.integers(0, 324)).tolist())

"""Requirements of acceptance_length_to_rates (contract ALR)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from numbers import Real

import numpy as np

from verispec.cases import case
from verispec.judge import Failure, Kind, Mismatch, OpUnderTest

REACH = "synthetic_acceptance_length is an accepted configuration"


def check_sum(op: OpUnderTest, length: float, n: int) -> None:
    """Require n rates with the sum length - 1, up to the rounding of each rate and of the difference."""
    rates = op.returned({"length": length, "n": n})
    if len(rates) != n or not all(isinstance(rate, Real) for rate in rates):
        raise Mismatch(Failure(Kind.VALUE, f"got {rates[:8]} for length {length}, expected {n} rates", "return"))
    total = math.fsum(rates)
    if not abs(total - (length - 1)) <= n * length * 2.0**-53:
        message = f"the rates for length {length} sum to {total}, expected {length - 1}: {rates[:8]}"
        raise Mismatch(Failure(Kind.VALUE, message, "return", total=n))


@case("ALR-1", length=[1.0, 1.25, 2.5, 4.0], n=[3, 5], reach=REACH)
def test_the_rates_add_up(op: OpUnderTest, length: float, n: int) -> None:
    check_sum(op, length, n)


@case("ALR-2", length=[2.0, 3.0, 3.75], reach=REACH)
def test_whole_positions_come_first(op: OpUnderTest, length: float) -> None:
    op.check_return_value({"length": length, "n": 3})


@case("ALR-3", length=[1.5, 2.125, 3.875], reach=REACH)
def test_the_fraction_follows(op: OpUnderTest, length: float) -> None:
    op.check_return_value({"length": length, "n": 6})


@case("ALR-3", length=[1.0, 1.25, 2.5, 4.0], n=[3, 5], reach=REACH)
def test_the_fraction_follows_in_few_positions(op: OpUnderTest, length: float, n: int) -> None:
    op.check_return_value({"length": length, "n": n})


@case("ALR-1", mode="generated", reach=REACH)
def test_generated_rates_add_up(op: OpUnderTest, seed: int) -> None:
    for length, n in generated(seed):
        check_sum(op, length, n)


@case("ALR-3", mode="generated", reach=REACH)
def test_generated(op: OpUnderTest, seed: int) -> None:
    for length, n in generated(seed):
        op.check_return_value({"length": length, "n": n})


def generated(seed: int) -> Iterator[tuple[float, int]]:
    """Yield lengths with full and with tiny fractions, the largest floats below a whole number, and many positions."""
    rng = np.random.default_rng(seed)
    for i in range(100):
        n = int(rng.integers(1, 10) if i % 10 else rng.integers(33, 300))
        length = float(rng.uniform(1, n + 1))
        if i % 4 == 0:
            length = float(np.nextafter(rng.integers(2, n + 2), 0))
        elif i % 4 == 1:
            length = float(rng.integers(1, n + 1) + 2.0 ** -rng.integers(8, 40))
        yield length, n

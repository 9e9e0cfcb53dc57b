"""Requirements of resolve_synthetic_acceptance_rates (contract RSA)."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.cases import case
from verispec.judge import Failure, Kind, Mismatch, OpUnderTest

REACH = "users write these values into a configuration"
NAN = float("nan")


def arguments(rates: Any = None, length: float | None = None, n: int = 3) -> dict[str, Any]:
    return {"n": n, "rates": None if rates is None else list(rates), "length": length}


@case("RSA-1", rates=[(0.9, 0.5, 0.5), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)], reach=REACH)
def test_valid_rates_are_returned(op: OpUnderTest, rates: tuple[float, ...]) -> None:
    op.check_return_value(arguments(rates))
    given = arguments(rates)
    if op.function(**given) is given["rates"]:
        raise Mismatch(Failure(Kind.VALUE, "the caller's own list is returned, and later changes of it show"))


@case("RSA-2", length=[1.0, 2.5, 4.0], reach=REACH)
def test_a_valid_length_gives_rates(op: OpUnderTest, length: float) -> None:
    op.check_return_value(arguments(length=length))


@case("RSA-3", given=["both", "neither"], reach=REACH)
def test_exactly_one_is_given(op: OpUnderTest, given: str) -> None:
    op.check_rejects(arguments((0.5, 0.5, 0.5), 2.0) if given == "both" else arguments())


@case("RSA-4", rates=[(0.5, 0.5), (0.5,) * 4, ()], reach=REACH)
def test_another_number_of_rates(op: OpUnderTest, rates: tuple[float, ...]) -> None:
    op.check_rejects(arguments(rates))


@case(
    "RSA-5",
    rates=[(1.5, 0.5, 0.5), (0.5, 0.5, -0.1), (0.5, NAN, 0.1), (1.0000000000000002, 0.5, 0.5), (0.5, 0.5, -5e-324)],
    reach=REACH,
)
def test_a_rate_out_of_range(op: OpUnderTest, rates: tuple[float, ...]) -> None:
    op.check_rejects(arguments(rates))


@case("RSA-6", rates=[(0.5, 0.6, 0.1), (0.1, 0.1, 0.2), (1.0, 0.49999999999999994, 0.5)], reach=REACH)
def test_a_rising_rate(op: OpUnderTest, rates: tuple[float, ...]) -> None:
    op.check_rejects(arguments(rates))


@case("RSA-7", length=[0.99, 4.01, -1.0, NAN, 0.9999999999999999, 4.000000000000001], reach=REACH)
def test_a_length_out_of_range(op: OpUnderTest, length: float) -> None:
    op.check_rejects(arguments(length=length))


@case("RSA-2", mode="generated", reach=REACH)
def test_generated(op: OpUnderTest, seed: int) -> None:
    """Rates and lengths in eighths, in turn, with refused rates among them; every tenth time many positions."""
    rng = np.random.default_rng(seed)
    for i in range(100):
        n = int(rng.integers(1, 10) if i % 10 else rng.integers(33, 300))
        rates = np.sort(rng.integers(0, 9, n) / 8)[::-1].tolist()
        if i % 5 == 0:
            op.check_rejects(arguments([*rates, 0.0], n=n))
        op.check_return_value(arguments(rates, n=n))
        op.check_return_value(arguments(length=int(rng.integers(8, 8 * n + 9)) / 8, n=n))

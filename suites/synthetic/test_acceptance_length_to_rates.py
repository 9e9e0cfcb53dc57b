"""Requirements of acceptance_length_to_rates (contract ALR)."""

from __future__ import annotations

import numpy as np

from verispec.cases import case
from verispec.judge import OpUnderTest

REACH = "synthetic_acceptance_length is an accepted configuration"


@case("ALR-1", length=[1.0, 1.25, 2.5, 4.0], n=[3, 5], reach=REACH)
def test_the_rates_add_up(op: OpUnderTest, length: float, n: int) -> None:
    op.check_return_value({"length": length, "n": n})


@case("ALR-2", length=[2.0, 3.0, 3.75], reach=REACH)
def test_whole_positions_come_first(op: OpUnderTest, length: float) -> None:
    op.check_return_value({"length": length, "n": 3})


@case("ALR-3", length=[1.5, 2.125, 3.875], reach=REACH)
def test_the_fraction_follows(op: OpUnderTest, length: float) -> None:
    op.check_return_value({"length": length, "n": 6})


@case("ALR-1", mode="generated", reach=REACH)
def test_generated(op: OpUnderTest, seed: int) -> None:
    """Lengths with full fractions, the largest floats below a whole number, and every tenth time many positions."""
    rng = np.random.default_rng(seed)
    for i in range(100):
        n = int(rng.integers(1, 10) if i % 10 else rng.integers(33, 300))
        length = float(rng.uniform(1, n + 1))
        if i % 4 == 0:
            length = float(np.nextafter(rng.integers(2, n + 2), 0))
        op.check_return_value({"length": length, "n": n})

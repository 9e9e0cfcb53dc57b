"""Oracle of acceptance_length_to_rates, in exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from verispec.reference.oracle._rows import Array


def acceptance_length_to_rates(*, length: float, n: int) -> dict[str, Array]:
    # Position i takes what earlier positions left of length - 1, but no more than 1.
    left = Fraction(length) - 1
    return {"return": np.array([float(min(max(left - i, Fraction(0)), Fraction(1))) for i in range(n)], np.float64)}

"""Oracle of unconditional_to_conditional_rates, in exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from verispec.reference.oracle._rows import Array


def unconditional_to_conditional_rates(*, rates: list[float]) -> dict[str, Array]:
    before, conditional = Fraction(1), []
    for rate in map(Fraction, rates):
        conditional.append(float(rate / before) if before else 0.0)
        before = rate
    return {"return": np.array(conditional, np.float64)}

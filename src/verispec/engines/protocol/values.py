"""Values of options and parameters: whole numbers, numbers within limits, and the error for all others."""

from __future__ import annotations

import math
from numbers import Integral, Real

from verispec.errors import VerispecError


def whole(value: object, least: int) -> bool:
    """Return True for an integer of at least `least`, which a bool is not."""
    if type(value) is int:  # of thousands of requests; an abstract class is slow to ask
        return value >= least
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least


def within(value: object, low: float, high: float = math.inf) -> bool:
    """Return True for a finite number from `low` to `high`."""
    if type(value) is float:
        return math.isfinite(value) and low <= value <= high
    number = isinstance(value, Real) and not isinstance(value, bool)
    return number and math.isfinite(float(value)) and low <= float(value) <= high  # type: ignore[arg-type]


def require(good: bool, name: str, wanted: str, got: object, code: str = "V-GEN-OPTION") -> None:
    """Raise `VerispecError` with `code` unless the value `got` of the field `name` is `good`: `wanted` says what is."""
    if not good:
        raise VerispecError(
            code, f"{name} must be {wanted}, got {got!r}", where=name, hint=f"pass {name} within these limits"
        )

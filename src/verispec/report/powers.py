"""Powers of ten as text, as every report writes evidence."""

from __future__ import annotations

import math


def power(log10: float) -> str:
    """Return 10^`log10` as text with two digits, however large it is; "infinite" and "0" for the infinities."""
    if math.isinf(log10):
        return "infinite" if log10 > 0 else "0"
    whole = math.floor(log10)
    if -4 <= whole < 4:
        return f"{10**log10:.2g}" if whole < 1 else f"{10**log10:.0f}"
    digits = f"{10 ** (log10 - whole):.1f}".removesuffix(".0")
    return f"1e{whole + 1}" if digits == "10" else f"{digits}e{whole}"

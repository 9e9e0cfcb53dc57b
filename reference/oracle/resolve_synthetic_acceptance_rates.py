"""Oracle of resolve_synthetic_acceptance_rates: the contract's clauses, executed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from verispec.reference.oracle._rows import Array
from verispec.reference.oracle.acceptance_length_to_rates import acceptance_length_to_rates


def resolve_synthetic_acceptance_rates(*, n: int, rates: list[float] | None, length: float | None) -> dict[str, Array]:
    if rates is not None and length is None:
        falls = all(later <= earlier for earlier, later in pairwise(rates))
        if len(rates) == n and all(0 <= rate <= 1 for rate in rates) and falls:
            return {"return": np.array(rates, np.float64)}
    if rates is None and length is not None and 1 <= length <= n + 1:
        return acceptance_length_to_rates(length=length, n=n)
    raise ValueError(f"no valid rates: n={n}, rates={rates}, length={length}")

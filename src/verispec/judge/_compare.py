"""Comparisons of an output with the oracle: which elements are wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Compare = Callable[[Array, Array, Mapping[str, Any]], Array]
"""Takes expected, got and the case's inputs (NumPy, by parameter name); returns a mask of wrong elements."""


def exact(expected: Array, got: Array, inputs: Mapping[str, Any]) -> Array:
    """Every element equal; NaN equals NaN."""
    if np.issubdtype(expected.dtype, np.floating):
        wrong: Array = (expected != got) & ~(np.isnan(expected) & np.isnan(got))
        return wrong
    different: Array = expected != got
    return different

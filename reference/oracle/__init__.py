"""The executable specification: one file an op, NumPy in float64, plain loops, no cleverness.

Module X defines a function X that takes the contract's parameters by name and returns the expected
outputs by parameter name. It never changes its arguments: an output is a copy of the buffer that
was passed in, so an element that the op must not touch keeps what was there.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

Oracle = Callable[..., dict[str, np.ndarray[Any, Any]]]


def load(name: str) -> Oracle:
    """The oracle of the op `name`."""
    function: Oracle = getattr(importlib.import_module(f"{__name__}.{name}"), name)
    return function

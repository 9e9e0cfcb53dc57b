"""The executable specification: one file per op, NumPy float64, plain loops.

Module X defines a function X that takes the contract's parameters by name and returns the expected outputs by parameter
name. It never changes its arguments. An output is a copy of the buffer that the caller passed, so that elements that
the op must not write keep their value.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from verispec.reference import contracts

Oracle = Callable[..., dict[str, np.ndarray[Any, Any]]]


def load(name: str) -> Oracle:
    """Return the oracle of the op `name`."""
    registered = contracts.registered_oracle(name)
    if registered is not None:
        return registered
    function: Oracle = getattr(importlib.import_module(f"{__name__}.{name}"), name)
    return function

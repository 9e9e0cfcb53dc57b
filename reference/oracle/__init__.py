"""The executable specification: one file per op, plain NumPy in float64.

Module X defines a function X that takes the contract's parameters by name and returns the expected outputs by parameter
name. It never changes its arguments. An output is a copy of the buffer that the caller passed, so that elements that
the op must not write keep their value.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

from verispec.reference import contracts

Oracle = Callable[..., dict[str, np.ndarray[Any, Any]]]


off_limits: ContextVar[bool] = ContextVar("off_limits", default=False)
"""True while an engine under test runs: one that asks the oracle proves nothing by agreeing with it."""


@functools.cache
def load(name: str) -> Oracle:
    """Return the oracle of the op `name`; calling it while `off_limits` is set raises RuntimeError."""
    function = contracts.registered_oracle(name)
    if function is None:
        function = getattr(importlib.import_module(f"{__name__}.{name}"), name)

    @functools.wraps(function)
    def guarded(**arguments: Any) -> dict[str, np.ndarray[Any, Any]]:
        if off_limits.get():
            raise RuntimeError(f"the engine under test called the oracle of {name}")
        return specification(**arguments)

    specification: Oracle = function
    return guarded

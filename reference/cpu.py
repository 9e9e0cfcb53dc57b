"""The reference's CPU kernels: `op(name)` returns the op's function, with arguments checked by its contract.

    >>> from verispec.reference import cpu
    >>> cpu.op("expand_batch_to_tokens")(output, values, counts, 0, 1, MAX_NUM_TOKENS=128)

Arguments are the contract's, by position or by keyword. Tensors are torch's or NumPy's, on the CPU, and outputs are
written in place. A call that breaks the contract raises `ContractError`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

from verispec.reference import contracts
from verispec.reference.contracts._check import ContractError, bind, check, signature

__all__ = ["ContractError", "kernel", "op"]


def _load_kernels() -> ModuleType:
    """Import the extension module, with OpenMP threads that sleep while they wait if torch has threads of its own.

    An OpenMP runtime reads its settings when it is loaded. If torch loaded a runtime of the same name, the module
    shares it and the setting has no effect. Otherwise a second runtime is loaded now, with the setting. Without torch
    the setting stays unchanged, since torch may share the runtime later.
    """
    policy = {"OMP_WAIT_POLICY": "passive"} if "torch" in sys.modules and "OMP_WAIT_POLICY" not in os.environ else {}
    os.environ.update(policy)
    try:
        return importlib.import_module("verispec.reference._csrc")
    finally:
        for name in policy:
            del os.environ[name]


_kernels = _load_kernels()


@cache
def kernel(name: str) -> Any:
    """Return a kernel without its checks, for callers in this package that construct all of its arguments."""
    return getattr(_kernels, name)


@cache
def op(name: str) -> Callable[..., None]:
    """Return the CPU kernel of the op `name`, with arguments checked by its contract.

    Raises:
        KeyError: there is no such op, or it has no CPU kernel.
    """
    contract = contracts.load(name)
    kernel = getattr(_kernels, name, None)
    if kernel is None:
        raise KeyError(f"the reference has no CPU kernel for {name!r}")
    passed = [p.name for p in contract.params if not getattr(p, "tuning", False)]

    def function(*args: Any, **kwargs: Any) -> None:
        seen = check(contract, bind(contract, args, kwargs), "cpu")
        kernel(*[seen[parameter] for parameter in passed])

    function.__name__ = function.__qualname__ = name
    function.__doc__ = contract.summary
    function.__signature__ = signature(contract)  # type: ignore[attr-defined]
    return function

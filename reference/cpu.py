"""The reference's CPU kernels: `op(name)` is the op's function, checked by its contract.

    >>> from verispec.reference import cpu
    >>> cpu.op("expand_batch_to_tokens")(output, values, counts, 0, 1, MAX_NUM_TOKENS=128)

Arguments are the contract's, by position or by keyword; tensors are torch's or NumPy's, on the CPU,
and outputs are written in place. A call that breaks the contract raises `ContractError`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

from verispec.reference import contracts
from verispec.reference.contracts._check import ContractError, bind, check, signature

__all__ = ["ContractError", "op"]


def _load_kernels() -> Any:
    """The extension module. Its OpenMP threads must not spin while they wait, since torch has threads of its own.

    The OpenMP runtime reads its settings when it is loaded, so they stand in the environment for
    that moment only; a policy that the user has set is left alone.
    """
    ours = {} if "OMP_WAIT_POLICY" in os.environ else {"OMP_WAIT_POLICY": "passive"}
    os.environ.update(ours)
    try:
        from verispec.reference import _csrc
    finally:
        for name in ours:
            del os.environ[name]
    return _csrc


_kernels = _load_kernels()


@cache
def op(name: str) -> Callable[..., None]:
    """The CPU kernel of the op `name`; KeyError when there is no such op, or none for the CPU."""
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

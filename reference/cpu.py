"""The reference's CPU kernels: `op(name)` returns the op's function, with arguments checked by its contract.

    >>> from verispec.reference import cpu
    >>> cpu.op("expand_batch_to_tokens")(output, values, counts, 0, 1, MAX_NUM_TOKENS=128)

Arguments are the contract's, by position or by keyword. Tensors are torch's or NumPy's, on the CPU, and outputs are
written in place. A call that breaks the contract raises `ContractError`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from verispec.reference import contracts
from verispec.reference.checked_op import checked_op, teach
from verispec.reference.contracts._check import ContractError, bind, check_layout
from verispec.reference.extension import extension

__all__ = ["ContractError", "kernel", "op"]


_kernels = extension()


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

    def checked(*args: Any, **kwargs: Any) -> None:
        seen, layout = check_layout(contract, bind(contract, args, kwargs), "cpu")
        kernel(*[seen[parameter] for parameter in passed])
        teach(function, contract, args, kwargs, layout)

    function: Callable[..., None] = checked_op(contract, checked, kernel=kernel)
    return function

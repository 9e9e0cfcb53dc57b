"""GPU kernels of the ops, one file an op: for CUDA, and for Triton's interpreter where there is no GPU.

Module X holds the kernels of op X and a function X, which takes the contract's parameters by name and
launches them: the grid is the host's business. No launcher waits for the device, reads a tensor's
value or allocates more than scratch, so every op can be captured in a CUDA graph.

`op` gives an op as its callers see it: arguments by position or by name, checked by the contract.
Triton is imported with the first op, never with this package. To run without a GPU set
``TRITON_INTERPRET=1`` before triton is imported, in a process of its own.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from verispec.reference.contracts import Contract, load
from verispec.reference.contracts._check import bind, check

__all__ = ["op"]


@cache
def op(name: str) -> Callable[..., None]:
    """The op `name`; KeyError when there is none, ImportError without triton, ContractError on a bad call."""
    contract = load(name)
    launch = getattr(importlib.import_module(f"{__name__}.{name}"), name)
    return partial(_call, contract, launch)


def _call(contract: Contract, launch: Callable[..., None], /, *args: Any, **kwargs: Any) -> None:
    bound = bind(contract, args, kwargs)
    check(contract, bound)
    launch(**bound)

"""GPU kernels, one file per op, for CUDA and for Triton's interpreter on machines without a GPU.

Module X contains the kernels of op X and a function X that launches them. It takes the contract's parameters by name
and computes the grid. No launcher waits for the device or reads a tensor's value. Launchers allocate scratch only, so
that every op can be captured in a CUDA graph.

`op` returns an op as callers see it, with arguments checked by the contract. The first op imports Triton. To run
without a GPU, set ``TRITON_INTERPRET=1`` before Triton is imported, in a separate process.
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
    """Return the Triton implementation of the op `name`, with arguments checked by the contract.

    Raises:
        KeyError: there is no such op.
        ImportError: Triton is not installed.
    """
    contract = load(name)
    launch = getattr(importlib.import_module(f"{__name__}.{name}"), name)
    return partial(_call, contract, launch)


def _call(contract: Contract, launch: Callable[..., None], /, *args: Any, **kwargs: Any) -> None:
    bound = bind(contract, args, kwargs)
    check(contract, bound)
    launch(**bound)

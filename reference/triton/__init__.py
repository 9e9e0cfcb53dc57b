"""GPU kernels, one file per op, for CUDA and for Triton's interpreter on machines without a GPU.

Module X contains the kernels of op X and a function X that launches them. It takes the contract's parameters by name
and computes the grid. No launcher waits for the device or reads a tensor's value. Launchers allocate scratch only, so
that every op can be captured in a CUDA graph.

`op` returns an op as callers see it, with arguments checked by the contract. The first op imports Triton. To run
without a GPU, set ``TRITON_INTERPRET=1`` before Triton is imported, in a separate process.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from verispec.reference.contracts import Contract, load
from verispec.reference.contracts._check import bind, check

__all__ = ["op", "tile_sizes"]

_SIZES = ("BLOCK", "CHUNK", "FEW", "GROUP", "PROGRAMS", "SAMPLE", "TILE", "WINDOW")
"""Last words of constants that are numbers of elements or programs."""


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


def tile_sizes(name: str) -> tuple[int, ...]:
    """Return the constant tile sizes and thresholds of an op's kernels, ascending.

    They are the integer constants of the op's module and of the modules that it imports from this package, by name.

    Raises:
        KeyError: there is no such op.
        ImportError: Triton is not installed.
    """
    load(name)
    modules = [importlib.import_module(f"{__name__}.{name}")]
    for module in modules:
        parts = {getattr(value, "__module__", "") or "" for value in vars(module).values()}
        found = [sys.modules[part] for part in parts if part.startswith(f"{__name__}._")]
        modules += [part for part in found if part not in modules]
    values = {
        getattr(value, "value", value)
        for module in modules
        for constant, value in vars(module).items()
        if constant.isupper() and constant.rpartition("_")[2] in _SIZES
    }
    return tuple(sorted(value for value in values if isinstance(value, int)))


def _call(contract: Contract, launch: Callable[..., None], /, *args: Any, **kwargs: Any) -> None:
    bound = bind(contract, args, kwargs)
    check(contract, bound)
    launch(**bound)

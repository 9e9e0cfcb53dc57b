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
from functools import cache
from typing import Any

from verispec.reference.checked_op import checked_op, teach
from verispec.reference.contracts import load
from verispec.reference.contracts._check import bind, check_layout

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
    launches = importlib.import_module(f"{__name__}._launches")
    seen: set[int] = set()

    def unchecked(*args: Any, **kwargs: Any) -> None:
        launch(**bind(contract, args, kwargs))

    def checked(*args: Any, **kwargs: Any) -> None:
        bound = bind(contract, args, kwargs)
        layout = check_layout(contract, bound)[1]
        # The first call of a layout compiles kernels and allocates scratch, so that the second one is recorded.
        if not launches.repeats_on(layout.device) or id(layout) not in seen:
            launch(**bound)
            seen.add(id(layout))
            return
        with launches.recorded() as record:
            launch(**bound)
        in_order = [bound.get(p.name) for p in contract.params]  # callers name parameters in any order
        teach(function, contract, args, kwargs, layout, launches.repeatable(record, in_order))

    function: Callable[..., None] = checked_op(contract, checked, unchecked=unchecked)
    return function


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

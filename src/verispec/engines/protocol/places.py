"""File and line of an engine's code: the kernel behind an op, and the function that calls it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from verispec.engines.protocol.engine import Engine, Unsupported

KERNEL, CALLER = "kernel", "caller"
"""Names of places in a record."""


@runtime_checkable
class Placed(Protocol):
    """An engine that knows the places of its code better than its functions do."""

    def places(self, name: str) -> Mapping[str, str]:
        """Return ``file:line`` of the kernel and of the caller of a tested part, as far as they are known.

        Args:
            name: name of an op, or of an end-to-end sampler's contract.

        Returns:
            A place by `KERNEL` and `CALLER`; files are relative to the folder that Python imports them from.
        """
        ...


def places(engine: Engine, name: str) -> dict[str, str]:
    """Return the places of the part `name`: what the engine says, else the place of its function.

    Code of verispec itself has no place: an adapter is not where a fault is.
    """
    try:
        if isinstance(engine, Placed):
            return {key: place for key, place in engine.places(name).items() if place}
        function = engine.op(name)
    except BaseException:  # an engine may raise anything, interrupts too, and a report without a place is a report
        return {}
    found = "" if isinstance(function, Unsupported) else place_of(function)
    return {KERNEL: found} if found else {}


def place_of(function: Any) -> str:
    """Return ``file:line`` of a function, a Triton kernel or a class; empty for code without a file, or verispec's."""
    for name in ("func", "fn"):  # a partial, an override's wrapper, a Triton kernel
        function = getattr(function, name, function)
    try:
        function = inspect.unwrap(function)
        file = Path(inspect.getsourcefile(function) or "").resolve()
        code = getattr(function, "__code__", None)
        line = code.co_firstlineno if code else inspect.getsourcelines(function)[1]
    except (TypeError, OSError, ValueError):
        return ""
    if (getattr(function, "__module__", None) or "").partition(".")[0] == "verispec" or not file.is_file():
        return ""
    roots = [Path(root).resolve() for root in sys.path if root]
    inside = [file.relative_to(root).as_posix() for root in roots if file.is_relative_to(root)]
    return f"{min(inside, key=len, default=file.name)}:{line}"

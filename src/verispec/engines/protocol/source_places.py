"""File and line of an engine's code: the kernel behind an op, its caller, and the line that triggers a fault."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from verispec.engines.protocol.engine import Engine, Unsupported
from verispec.reference.contracts import Origin

KERNEL, CALLER, CODE, ORIGIN = "kernel", "caller", "code", "origin"
"""Names in a record: places, and whose code the kernel is."""
SHARED = "shared code"
"""Code of a kernel that the engine runs on every platform."""


@runtime_checkable
class Placed(Protocol):
    """An engine that knows the places of its code better than its functions do."""

    def places(self, name: str) -> Mapping[str, str]:
        """Return ``file:line`` of the kernel and of the caller of a tested part, as far as they are known.

        Args:
            name: name of an op, or of an end-to-end sampler's contract.

        Returns:
            A place by `KERNEL` and `CALLER`; files are relative to the folder that Python imports them from. By `CODE`
            whose code the kernel is, such as `SHARED` or "CPU code".
        """
        ...


def places(engine: Engine, name: str, origin: Origin | None = None) -> dict[str, str]:
    """Return the places of the part `name`: what the engine says, else the place of its function; and of `origin`.

    Code of verispec itself has no place: an adapter is not where a fault is.
    """
    found = _of_part(engine, name)
    if line := place_of_line(origin) if origin else "":
        found[ORIGIN] = line
    return found


def _of_part(engine: Engine, name: str) -> dict[str, str]:
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
    return f"{_relative(file)}:{line}"


def place_of_line(origin: Origin) -> str:
    """Return ``file:line`` of a line of the engine in this process; empty if it has no such line or is not loaded."""
    module, cls, function = _split(origin.function)
    if not module:
        return ""
    file = Path(str(find_spec(module).origin)).resolve()  # type: ignore[union-attr]
    source = file.read_text(encoding="utf-8")
    body: list[ast.stmt] = ast.parse(source).body
    for name in filter(None, (cls, function)):
        inner = next((n for n in body if getattr(n, "name", "") == name), None)
        body = getattr(inner, "body", [])
    if not body:
        return ""
    lines = source.splitlines()[: body[-1].end_lineno]
    found = (n for n in range(body[0].lineno, len(lines) + 1) if origin.line in lines[n - 1])
    return next((f"{_relative(file)}:{n}" for n in found), "")


def _split(dotted: str) -> tuple[str, str, str]:
    """Return (module, class or empty, function); three empty texts if this process has no such module."""
    names = dotted.split(".")
    for size in (1, 2):
        module, rest = ".".join(names[:-size]), names[-size:]
        try:
            if module and names[0] in sys.modules and (spec := find_spec(module)) and spec.has_location:
                return module, "".join(rest[:-1]), rest[-1]
        except ImportError:
            continue
    return "", "", ""


def _relative(file: Path) -> str:
    """Return the path of a file relative to the folder that Python imports it from."""
    roots = [Path(root).resolve() for root in sys.path if root]
    inside = [file.relative_to(root).as_posix() for root in roots if file.is_relative_to(root)]
    return min(inside, key=len, default=file.name)

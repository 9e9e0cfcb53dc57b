"""The Triton kernels that a case launches on a GPU, and the kernels that a function is compiled into.

Compiled code records no statements, so the reach of a case on a GPU is the kernels that it launches.
"""

from __future__ import annotations

import ast
import contextlib
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from verispec.mutants import measured
from verispec.mutants.layers import Layer
from verispec.mutants.model import Mutant

launched: set[str] = set()
"""Kernels launched since the last `clear`, as ``module.function``."""


def watch() -> None:
    """Record every launch of this process in `launched`."""
    from triton.runtime.jit import JITFunction

    run = JITFunction.run

    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        launched.add(f"{self.fn.__module__.rpartition('.')[2]}.{self.fn.__name__}")
        return run(self, *args, **kwargs)

    JITFunction.run = recorded


def open_device(device: str) -> None:
    """Make this process's context on a device, which takes seconds and must not count as time of a case.

    Cases of other processes may hold the device's whole memory for a while.
    """
    import torch

    for _ in range(60):
        with contextlib.suppress(RuntimeError):
            torch.zeros(1, device=device)
            return
        time.sleep(1)


def kernels_with(paths: Iterable[Path]) -> Mapping[str, frozenset[str]]:
    """Return, for each ``@triton.jit`` function of `paths`, all such functions that call it, itself included."""
    calls: dict[str, set[str]] = {}
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        known = {
            alias.asname or alias.name: f"{(node.module or '').rpartition('.')[2]}.{alias.name}"
            for node in tree.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        functions = _kernels(path)
        known |= {function.name: f"{path.stem}.{function.name}" for function in functions}
        for function in functions:
            names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
            calls[f"{path.stem}.{function.name}"] = {known[name] for name in names if name in known}
    found: dict[str, set[str]] = {name: {name} for name in calls}
    for kernel in calls:
        waiting, seen = [kernel], {kernel}
        while waiting:
            for called in calls.get(waiting.pop(), set()) - seen:
                seen.add(called)
                waiting.append(called)
                found.setdefault(called, set()).add(kernel)
    return {name: frozenset(kernels) for name, kernels in found.items()}


def kernel_at(path: Path, line: int) -> str:
    """Return the ``@triton.jit`` function around a line of a file, empty for host code."""
    around = (node for node in _kernels(path) if node.lineno <= line <= (node.end_lineno or 0))
    return next((f"{path.stem}.{node.name}" for node in around), "")


def kernels_of(path: Path) -> list[str]:
    """Return the ``@triton.jit`` functions of a file, as ``module.function``."""
    return [f"{path.stem}.{node.name}" for node in _kernels(path)]


def _kernels(path: Path) -> list[ast.FunctionDef]:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return [node for node in body if isinstance(node, ast.FunctionDef) and is_kernel(node)]


def is_kernel(function: ast.FunctionDef) -> bool:
    """Return True for a function decorated with ``@triton.jit``, with arguments or without."""
    return any("triton.jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def cases_of(mutant: Mutant, layer: Layer, baseline: Mapping[str, Mapping[str, Any]], known: Iterable[str]) -> set[str]:
    """Return the cases that a mutant of a file with kernels may change.

    Those of the mutant's ops that launch a kernel with the mutated code. For host code all cases of the ops, or those
    that launch a kernel of the file if it has no ops.
    """
    path = layer.folder / mutant.file
    cases = {case for case in known if not mutant.ops or measured.subject(case) in mutant.ops}
    name = kernel_at(path, mutant.line)
    if not name and mutant.ops:
        return cases
    callers = kernels_with(layer.paths())
    kernels = frozenset().union(*(callers[kernel] for kernel in ([name] if name else kernels_of(path))))
    return {case for case in cases if not kernels.isdisjoint(baseline[case]["kernels"])}

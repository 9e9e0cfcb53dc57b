"""Activation of one mutant in this process, and records of the statements that cases reach."""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Protocol

from verispec.mutants import launches, operators_python, switches
from verispec.mutants.layers import Layer, measured_together
from verispec.mutants.model import ALWAYS, Mutant
from verispec.mutants.operators_python import PythonFault
from verispec.mutants.schemata import TRIGGERS, Switchboard


class Activation(Protocol):
    """Activation of a layer's mutants.

    `prepare` runs before the engine starts, the others in a process of their own.
    """

    def prepare(self) -> None:
        """Load the modules that all mutants share, before the engine starts."""
        ...

    def cover(self) -> None:
        """Start to record which sites are reached."""
        ...

    def reached(self) -> set[int]:
        """Return the keys that were reached since the last call."""
        ...

    def activate(self, mutant: Mutant) -> None:
        """Make the mutant act in this process."""
        ...

    def keys(self, mutant: Mutant) -> set[int]:
        """Return the keys that a case must reach to run the mutant."""
        ...


class CppActivation:
    """Mutants of the C++ kernels: switches of one extension."""

    def __init__(self, extension: Path, count: int) -> None:
        self._extension, self._count = extension, count
        self._switches: Switchboard | None = None

    def prepare(self) -> None:
        """Load the extension with the mutants instead of the reference's kernels."""
        name = "verispec.reference._csrc"
        spec = importlib.util.spec_from_file_location(name, self._extension)
        assert spec is not None
        assert spec.loader is not None
        import torch  # brings its OpenMP runtime first, as in a run

        assert torch
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
        setattr(importlib.import_module("verispec.reference"), "_csrc", module)  # noqa: B010
        self._switches = Switchboard(self._extension, self._count)

    def cover(self) -> None:
        """Start to record which switches are reached."""
        assert self._switches is not None
        self._switches.cover()

    def reached(self) -> set[int]:
        """Return the numbers ``8 * switch + trigger`` that were reached since the last call."""
        assert self._switches is not None
        found = set()
        for number, bits in enumerate(self._switches.reached()):
            if bits:
                found |= {8 * number + when for when in range(len(TRIGGERS)) if bits >> when & 1}
        return found

    def activate(self, mutant: Mutant) -> None:
        """Select the mutant's switch and trigger."""
        assert self._switches is not None
        self._switches.select(mutant)

    def keys(self, mutant: Mutant) -> set[int]:
        """Return the key of the mutant's switch and trigger."""
        return {8 * mutant.number + TRIGGERS.index(mutant.trigger)}


class PythonActivation:
    """Mutants of Python files: a mutated source is imported, or replaces the code of an imported module.

    With `on_device` files with kernels record no statements, since compiled code cannot.
    """

    FILE = 1 << 20
    """Statements of file i, of all layers that are measured together, are numbered from ``i * FILE``."""

    def __init__(self, layer: Layer, folder: Path, *, on_device: bool = False) -> None:
        self._layer = layer
        self._base = folder
        self._on_device = on_device
        self._paths = {p.relative_to(layer.folder).as_posix(): p for p in layer.paths()}
        self._measured = {path: part for part in measured_together(layer) for path in part.paths()}
        self._faults: dict[str, list[PythonFault]] = {}

    def prepare(self) -> None:
        """Load nothing: the sources are changed in the process of each mutant."""

    def cover(self) -> None:
        """Install sources that record which statements are reached."""
        for i, (path, layer) in enumerate(self._measured.items()):
            if self._on_device and launches.kernels_of(path):
                continue
            source = operators_python.covered(path.read_text(encoding="utf-8"))
            source = source.replace("_verispec_reached(", f"_verispec_reached({i * self.FILE} + ")
            self._install(layer, path, source)

    def reached(self) -> set[int]:
        """Return the keys of the statements that were reached since the last call."""
        found = {8 * n + when for n, bits in switches.seen.items() for when in range(8) if bits >> when & 1}
        switches.seen.clear()
        return found

    def activate(self, mutant: Mutant) -> None:
        """Install the mutated source."""
        source = self._paths[mutant.file].read_text(encoding="utf-8")
        fault = self._fault(mutant)
        self._install(self._layer, self._paths[mutant.file], operators_python.mutated(source, fault, mutant.trigger))

    def keys(self, mutant: Mutant) -> set[int]:
        """Return the key of the fault's statement.

        Code that runs at import has the keys of all statements of the file. An expression that may be evaluated more
        often than its statement may act where the statement is reached once.
        """
        number = list(self._measured).index(self._paths[mutant.file])
        fault = self._fault(mutant)
        may_act = fault.repeats and mutant.trigger == operators_python.ON_REPETITION
        when = 0 if may_act else operators_python.TRIGGERS.index(mutant.trigger)
        if self._in_function(mutant.file, fault):
            return {8 * (number * self.FILE + fault.statement) + when}
        return {8 * (number * self.FILE + f.statement) for f in self._faults[mutant.file]}

    def _in_function(self, name: str, fault: PythonFault) -> bool:
        tree = ast.parse(self._paths[name].read_text(encoding="utf-8"))
        return any(
            node.body[0].lineno <= fault.line <= (node.end_lineno or 0)
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
        )

    def _fault(self, mutant: Mutant) -> PythonFault:
        if mutant.file not in self._faults:
            source = self._paths[mutant.file].read_text(encoding="utf-8")
            self._faults[mutant.file] = operators_python.faults(source)
        return self._faults[mutant.file][mutant.number]

    def _install(self, layer: Layer, original: Path, source: str) -> None:
        # Imports come later and may be cached by name, size and second: no two processes share a file.
        path = self._base / str(os.getpid()) / layer.name / original.relative_to(layer.folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
        module = layer.module(original)
        if module in sys.modules:
            _replace(sys.modules[module], compile(source, str(path), "exec"))
        else:
            sys.meta_path.insert(0, _Finder(module, path))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module in another file."""

    def __init__(self, name: str, path: Path) -> None:
        self._name, self._path = name, path

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        return importlib.util.spec_from_file_location(name, self._path) if name == self._name else None


def _replace(module: ModuleType, code: CodeType) -> None:
    """Give the functions of an imported module the code of its mutated source, in place; constants too.

    Others hold references to the functions and classes, so the objects stay and their code changes.
    """
    fresh = ModuleType(module.__name__)
    fresh.__dict__.update({k: v for k, v in vars(module).items() if k.startswith("__")})
    before = sys.modules[module.__name__]
    sys.modules[module.__name__] = fresh
    try:
        exec(code, fresh.__dict__)
    finally:
        sys.modules[module.__name__] = before
    for name in ("_verispec_acts", "_verispec_reached", "_verispec_previous"):
        setattr(module, name, getattr(fresh, name))
    _adopt(vars(module), vars(fresh), module)


def _adopt(old: Any, new: Any, module: ModuleType) -> None:
    for name, value in dict(new).items():
        if name.startswith("__") and name.endswith("__") and name not in ("__init__", "__post_init__", "__call__"):
            continue
        here = old.get(name)
        if isinstance(value, type) and isinstance(here, type) and value.__module__ == module.__name__:
            _adopt(vars(here), vars(value), module)
            continue
        ours, theirs = _plain(here), _plain(value)
        if ours is not None and theirs is not None:
            if ours.__code__.co_freevars == theirs.__code__.co_freevars:
                ours.__code__ = theirs.__code__
                ours.__defaults__, ours.__kwdefaults__ = theirs.__defaults__, theirs.__kwdefaults__
        elif old is vars(module) and _is_constant(value) and _literal(here) != _literal(value):
            _spread(module, name, value)


def _plain(value: Any) -> FunctionType | None:
    """Return the function in a method, a property, a cache or a Triton kernel; None for other values."""
    for _ in range(4):
        if isinstance(value, FunctionType):
            return value
        # Triton keeps a kernel's function as `fn`, and its interpreter reads the source when it first runs.
        inner = (getattr(value, name, None) for name in ("__wrapped__", "__func__", "fget", "fn"))
        value = next((function for function in inner if function is not None), None)
    return None


def _literal(value: Any) -> Any:
    """Return the number in a ``tl.constexpr``, and any other value as it is."""
    return value.value if type(value).__name__ == "constexpr" else value


def _is_constant(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_constant(entry) for entry in value.values())
    return isinstance(_literal(value), (int, float, bool, tuple))


def _spread(module: ModuleType, name: str, value: Any) -> None:
    """Set a changed constant in its module, and wherever it was imported under its name.

    Constants of Triton kernels and dicts are objects of their own, so that others of one name and value stay.
    """
    before = vars(module).get(name)
    is_object = isinstance(before, dict) or before is not _literal(before)
    package = module.__name__.partition(".")[0]
    for other in [m for n, m in sys.modules.items() if n.partition(".")[0] == package]:
        if name in vars(other):
            here = vars(other)[name]
            if here is before or (not is_object and here == before):
                setattr(other, name, value)
    setattr(module, name, value)


def make(layer: Layer, extension: Path | None, count: int, folder: Path, *, on_device: bool = False) -> Activation:
    """Return the activation of a layer.

    Args:
        layer: layer of the mutants.
        extension: built with all faults; for the C++ layer only.
        count: number of switches of the extension.
        folder: folder for mutated sources; its maker removes it.
        on_device: True if Triton's kernels are compiled for a device.
    """
    if layer.is_cpp:
        assert extension is not None
        return CppActivation(extension, count)
    return PythonActivation(layer, folder, on_device=on_device)


__all__ = ["ALWAYS", "Activation", "make"]

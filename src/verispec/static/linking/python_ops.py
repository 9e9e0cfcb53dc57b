"""Ops that Python code registers: the functions that they run, and their fake implementations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from verispec.static.facts import Function, PythonOp
from verispec.static.finding import Location
from verispec.static.linking.index import Index, Module

Definition = tuple[Module, Function]


@dataclass(frozen=True, slots=True)
class Registered:
    """A registration, with the definitions that its references stand for; several if a module chooses one."""

    module: Module
    op: PythonOp
    functions: tuple[Definition, ...]
    fakes: tuple[Definition, ...]

    @property
    def location(self) -> Location:
        """Place of the registration."""
        return Location(self.module.path, self.op.line)

    @property
    def name(self) -> str:
        """The op's name without its namespace, or that of the function which became the op."""
        return self.op.name.rpartition("::")[2] or (self.functions[0][1].name if self.functions else "")


def registered(index: Index) -> Iterator[Registered]:
    """Yield all registrations of `index`."""
    for module in index.modules.values():
        for op in module.facts.ops:
            yield Registered(module, op, _definitions(index, module, op.function), _definitions(index, module, op.fake))


def _definitions(index: Index, module: Module, reference: str) -> tuple[Definition, ...]:
    """Return the targets of a reference of `facts.PythonOp` stands for; nothing if one of it is not a function."""
    if reference.startswith("#"):
        name, _, line = reference[1:].rpartition(":")
        return tuple((module, f) for f in module.functions.get(name, ()) if f.line == int(line))
    found = index.resolve(module, reference)
    if not all(entity.kind == "function" for entity in found):
        return ()
    return tuple((entity.module, entity.function) for entity in found if entity.function is not None)

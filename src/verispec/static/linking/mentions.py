"""Names that hold kernels, and files that mention a dispatcher by name, found by the words of their outlines."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from verispec.static.linking.index import Index, Module
from verispec.static.linking.launches import Links


def holders(links: Links) -> set[bytes]:
    """Return the names under which modules and classes hold kernels, in tables and as results of functions too.

    A kernel inside a function has no name that another file could use.
    """
    names = {
        _last(kernel.name)
        for kernel in links.kernels.values()
        if not _is_inside(kernel.module, kernel.functions[0].name)
    }
    held = {
        (_last(binding.value), _last(name))
        for module in links.index.modules.values()
        for name, bindings in module.bindings.items()
        for binding in bindings
        if binding.value
    }
    while new := {name for value, name in held if value in names} - names:
        names |= new
    return {name.encode() for name in names}


def _is_inside(module: Module, name: str) -> bool:
    """Return True if the function `name` of `module` is defined in another function."""
    owner = name.rpartition(".")[0]
    return bool(owner) and (owner in module.functions or _is_inside(module, owner))


def _last(reference: str) -> str:
    """Return the last name of a reference, without the marks of a result or of an entry."""
    return reference.rpartition(".")[2].lstrip("$@").removesuffix("()").removesuffix("[]")


class _File(NamedTuple):
    path: str
    last: bytes
    """Last part of the module's name."""

    words: frozenset[bytes]


class Mentions:
    """The files that contain a name. Each name is looked up once, however often the same files are linked."""

    def __init__(self) -> None:
        self._known: dict[bytes, list[_File]] = {}

    def dispatcher_users(self, links: Links) -> set[str]:
        """Return files that mention a dispatcher, and its module or another such file, which may export it again."""
        origins: dict[bytes, set[bytes]] = defaultdict(set)
        for dispatcher in links.dispatchers.values():
            for qualified in {dispatcher.name, *(slot.rpartition(".")[0] for slot in dispatcher.slots)}:
                owner, _, last = qualified.rpartition(".")
                origins[last.encode()].add(owner.rpartition(".")[2].encode())
        self._look_up(links.index, origins.keys() - self._known.keys())
        found: set[str] = set()
        for name, owners in origins.items():
            left, exporters = self._known[name], owners
            while users := [file for file in left if not exporters.isdisjoint(file.words)]:
                reached = {file.path for file in users}
                exporters = {file.last for file in users}
                left = [file for file in left if file.path not in reached]
                found |= reached
        return found

    def _look_up(self, index: Index, names: set[bytes]) -> None:
        self._known.update((name, []) for name in names)
        for module in index.modules.values() if names else ():
            words = frozenset(module.outline.words.split())
            for name in names & words:
                self._known[name].append(_File(module.path, module.name.rpartition(".")[2].encode(), words))

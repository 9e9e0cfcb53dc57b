"""Files that mention a dispatcher by name, found by the words of their outlines."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from verispec.static.linking.index import Index
from verispec.static.linking.launches import Links


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

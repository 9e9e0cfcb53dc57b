"""Classes of a tree and their bases, from the outlines of its files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from verispec.static.facts import OutlineClass, OutlineMethod
from verispec.static.finding import Location
from verispec.static.linking.index import Index, Module, absolute


@dataclass(eq=False, slots=True)
class Type:
    """A class and where it stands; equal only to itself."""

    module: Module
    outline: OutlineClass
    methods: dict[str, OutlineMethod]

    @property
    def name(self) -> str:
        """Dotted name of the class."""
        return f"{self.module.name}.{self.outline.name}"

    @property
    def location(self) -> Location:
        """Line of the class statement."""
        return Location(self.module.path, self.outline.line)

    def method(self, name: str) -> OutlineMethod | None:
        """Return the method `name` that the class itself defines; None if it has none."""
        return self.methods.get(name)

    def at(self, method: OutlineMethod) -> Location:
        """Return the place of `method` in the file of this class."""
        return Location(self.module.path, method.line)


class Hierarchy:
    """All classes by simple name, and the bases of each that are in the tree."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._by_name: dict[str, list[Type]] = defaultdict(list)
        self._by_key: dict[tuple[str, str], Type] = {}
        for module in index.modules.values():
            for outline in module.outline.classes:
                entry = Type(module, outline, {method.name: method for method in outline.methods})
                self._by_name[outline.name].append(entry)
                self._by_key[module.name, outline.name] = entry
        self._bases: dict[tuple[str, str], tuple[Type, ...]] = {}
        self._ancestors: dict[Type, tuple[Type, ...]] = {}

    def __iter__(self) -> Iterator[Type]:
        return iter(self._by_key.values())

    def bases(self, entry: Type) -> tuple[Type, ...]:
        """Return the direct bases of `entry` that are in the tree.

        A base that shares its name with another class is omitted.
        """
        key = (entry.module.name, entry.outline.name)
        if key not in self._bases:
            found = (self._resolve(entry.module, base) for base in entry.outline.bases)
            self._bases[key] = tuple(base for base in found if base is not None and base is not entry)
        return self._bases[key]

    def ancestors(self, entry: Type) -> tuple[Type, ...]:
        """Return all bases of `entry`, nearest first."""
        known = self._ancestors.get(entry)
        if known is None:
            found: dict[Type, None] = {}
            queue = list(self.bases(entry))
            for base in queue:
                if base not in found:
                    found[base] = None
                    queue.extend(self.bases(base))
            known = self._ancestors[entry] = tuple(found)
        return known

    def _resolve(self, module: Module, text: str) -> Type | None:
        head, _, rest = text.partition(".")
        last = text.rpartition(".")[2]
        local = self._by_key.get((module.name, text))
        if local is not None:
            return local
        imported = dict(module.outline.imports).get(head)
        if imported is not None:
            target = absolute(module, imported) + (f".{rest}" if rest else "")
            home, name = self._index.split(target)
            if home is not None and (home.name, name) in self._by_key:
                return self._by_key[home.name, name]
            if home is None:
                return None
        same = self._by_name.get(last, [])
        return same[0] if len(same) == 1 and imported is not None else None

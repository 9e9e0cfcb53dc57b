"""The linked index of a tree: modules by name, and the definition behind every reference.

Nothing is imported: a name is followed through imports, aliases and classes as Python would at run time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from packaging.version import Version

from verispec.static.facts import Binding, Class, CppFacts, FileFacts, Function, Outline, PythonFacts
from verispec.static.linking.versions import live
from verispec.static.tree import is_test

_EMPTY: Final = PythonFacts()
_PROPERTIES: Final = frozenset({"property", "cached_property", "functools.cached_property"})
_KEEPING: Final = _PROPERTIES | {
    "cache", "functools.cache", "lru_cache", "functools.lru_cache", "staticmethod", "classmethod",
}  # fmt: skip
"""Decorators that keep the result of a function."""

_ROOTS: Final = frozenset({"", "src", "python"})
"""Folders from which packages are imported."""


@dataclass(slots=True)
class Module:
    """A Python file of the tree. `exact` says that its syntax tree was read, so that its namespace is known."""

    name: str
    path: str
    package: bool
    core: bool
    outline: Outline
    facts: PythonFacts
    exact: bool
    dead_imports: tuple[str, ...] = ()
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    functions: dict[str, list[Function]] = field(default_factory=dict)
    classes: dict[str, Class] = field(default_factory=dict)


def absolute(module: Module, reference: str) -> str:
    """Return `reference` without leading dots, which are relative to `module`."""
    dots = len(reference) - len(reference.lstrip("."))
    if not dots:
        return reference
    parts = module.name.split(".")
    keep = len(parts) - dots + (1 if module.package else 0)
    return ".".join([*parts[: max(keep, 0)], reference[dots:]]).strip(".")


@dataclass(frozen=True, slots=True)
class Entity:
    """A ``function``, ``class``, ``module`` or ``instance`` of `callee`, made with `args`."""

    kind: str
    module: Module
    name: str
    function: Function | None = None
    callee: Entity | None = None
    args: tuple[Entity, ...] = ()

    @property
    def dotted(self) -> str:
        """Dotted name, of the module and in it."""
        return f"{self.module.name}.{self.name}" if self.name else self.module.name

    @property
    def klass(self) -> Class | None:
        """Summary of the class; None for other kinds."""
        return self.module.classes.get(self.name) if self.kind == "class" else None


@dataclass(slots=True)
class Index:
    """All modules of a tree (and of the core that it plugs into), and its C++ facts by path.

    `host_cpp` are the paths of the core's C++ files.
    """

    modules: dict[str, Module]
    cpp: dict[str, CppFacts]
    host: Version | None = None
    wanted: set[str] = field(default_factory=set)
    host_cpp: set[str] = field(default_factory=set)
    _entities: dict[tuple[str, str], tuple[Entity, ...]] = field(default_factory=dict)

    def split(self, dotted: str) -> tuple[Module | None, str]:
        """Return the longest prefix of `dotted` that is a module, and the rest."""
        head, rest = dotted, ""
        while head:
            if head in self.modules:
                return self.modules[head], rest
            head, _, last = head.rpartition(".")
            rest = f"{last}.{rest}" if rest else last
        return None, dotted

    def resolve(self, module: Module, reference: str, *, depth: int = 0) -> tuple[Entity, ...]:
        """Return everything that a `reference` (see `facts`) in `module` may stand for; empty if that cannot be known.

        `depth` counts the references that led here, which ends cycles.
        """
        if not reference or depth > 12:
            return ()
        if reference[0] == "$":
            return self._lookup(module, reference[1:], depth)
        if reference[0] == "@":
            owner, _, attribute = reference[1:].partition(".")
            return self._attribute(Entity("class", module, owner), attribute, depth)
        target, rest = self.split(absolute(module, reference))
        if target is None:
            return ()
        return self._lookup(target, rest, depth) if rest else (Entity("module", target, ""),)

    def _lookup(self, module: Module, text: str, depth: int) -> tuple[Entity, ...]:
        key = (module.name, text)
        known = self._entities.get(key)
        if known is None:
            self._entities[key] = ()  # A circle of imports leads nowhere.
            known = self._entities[key] = tuple(self._find(module, text, depth))
        return known

    def _find(self, module: Module, text: str, depth: int) -> Iterator[Entity]:
        head, _, rest = text.partition(".")
        if not module.exact:
            self.wanted.add(module.path)
        if head.endswith("()"):
            made = self._lookup(module, head.removesuffix("()"), depth + 1)
            if rest:
                yield from (e for c in made if c.kind == "class" for e in self._attribute(c, rest, depth + 1))
            else:
                yield from self._results(made, depth)
            return
        if head.endswith("[]"):
            yield from self._entries_of(module, head, depth) if not rest else ()
            return
        bindings = module.bindings.get(head)
        if not bindings and not head.startswith("_"):
            for star in module.bindings.get("*", ()):
                for home in self.resolve(module, star.value.removesuffix(".*"), depth=depth + 1):
                    if home.kind == "module" and home.module is not module:
                        yield from self._lookup(home.module, text, depth + 1)
        if not bindings:
            inner = self.modules.get(f"{module.name}.{head}")
            if inner is not None:
                yield from self._lookup(inner, rest, depth + 1) if rest else (Entity("module", inner, ""),)
            return
        for binding in bindings:
            for entity in self._bound(module, binding, depth):
                if not rest:
                    yield entity
                elif entity.kind == "module":
                    yield from self._lookup(entity.module, rest, depth + 1)
                else:
                    yield from self._attribute(entity, rest, depth)

    def _bound(self, module: Module, binding: Binding, depth: int) -> Iterator[Entity]:
        if binding.kind == "def":
            for function in module.functions.get(binding.name, ()):
                if function.line == binding.line:
                    yield Entity("function", module, function.name, function)
        elif binding.kind == "class":
            yield Entity("class", module, binding.name)
        elif binding.kind in {"import", "alias"}:
            yield from self.resolve(module, binding.value, depth=depth + 1)
        elif binding.kind == "call":
            callees = self.resolve(module, binding.value, depth=depth + 1)
            args = tuple(e for arg in binding.args[:1] for e in self.resolve(module, arg, depth=depth + 1))
            for callee in callees:
                yield Entity("instance", module, binding.name, None, callee, args)

    def member(self, entity: Entity, name: str) -> tuple[Entity, ...]:
        """Return the possible values of the attribute `name` of `entity`, a class or instance, may be."""
        return self._attribute(entity, name, 0)

    def _attribute(self, entity: Entity, text: str, depth: int) -> tuple[Entity, ...]:
        head, _, rest = text.partition(".")
        owner = entity.callee if entity.kind == "instance" else entity
        if rest or owner is None or owner.kind != "class" or depth > 12:
            return ()
        if head.endswith("()"):
            return self._results(self._attribute(owner, head.removesuffix("()"), depth + 1), depth)
        module, name = owner.module, f"{owner.name}.{head}"
        functions = module.functions.get(name, ())
        if any(decorator.text in _PROPERTIES for function in functions for decorator in function.decorators):
            entities = tuple(Entity("function", module, name, function) for function in functions)
            return self._results(entities, depth)
        if functions:
            return tuple(Entity("function", module, name, function) for function in functions)
        held = module.bindings.get(name)
        if held:
            values = [self.resolve(module, binding.value, depth=depth + 1) for binding in held]
            return tuple(entity for value in values for entity in value) if all(values) else ()
        if name in module.classes:
            return (Entity("class", module, name),)
        found: list[Entity] = []
        klass = module.classes.get(owner.name)
        for base in klass.bases if klass else ():
            for parent in self.resolve(module, base, depth=depth + 1):
                if parent.kind == "class":
                    found.extend(self._attribute(parent, head, depth + 1))
        return tuple(found)

    def _entries_of(self, module: Module, name: str, depth: int) -> tuple[Entity, ...]:
        """Return the values of a module-level table; empty unless all of them are known."""
        held = module.bindings.get(name)
        if held:
            values = [self.resolve(module, binding.value, depth=depth + 1) for binding in held]
        else:
            imports = [b for b in module.bindings.get(name.removesuffix("[]"), ()) if b.kind == "import"]
            values = [self.resolve(module, f"{binding.value}[]", depth=depth + 1) for binding in imports]
        return tuple(entity for value in values for entity in value) if all(values) else ()

    def _results(self, functions: tuple[Entity, ...], depth: int) -> tuple[Entity, ...]:
        """Return the possible results of functions; empty unless all of it is known."""
        found: list[Entity] = []
        for entity in functions:
            function = entity.function
            known = function is not None and all(decorator.text in _KEEPING for decorator in function.decorators)
            bindings = entity.module.bindings.get(f"{entity.name}()", ()) if known else ()
            values = [self.resolve(entity.module, binding.value, depth=depth + 1) for binding in bindings]
            if not values or not all(values):
                return ()
            found += (result for value in values for result in value)
        return tuple(found)

    def slot(self, module: Module, reference: str) -> str:
        """Return the place that is read for a reference.

        A name that a module imported is a place of that module, not of the one that defines it.

        Args:
            module: module with the reference.
            reference: reference as in the summary of the file.

        Returns:
            ``package.module.name``; empty if not known.
        """
        if reference.startswith("@"):
            return f"{module.name}.{reference[1:]}"
        if reference.startswith("$"):
            head, _, rest = reference[1:].partition(".")
            if rest:
                for binding in module.bindings.get(head, ()):
                    if binding.kind == "import":
                        target, inner = self.split(absolute(module, binding.value))
                        if target is not None and not inner:
                            return self.slot(target, f"${rest}")
            return f"{module.name}.{reference[1:]}"
        target, rest = self.split(absolute(module, reference))
        return f"{target.name}.{rest}" if target is not None else ""


def build(files: Iterable[tuple[dict[str, FileFacts], bool]], host: Version | None = None) -> Index:
    """Return the index of trees.

    Args:
        files: per tree, the summaries by path, and True for the host tree.
        host: version of the host tree, for which version tests of the plugin are evaluated.
    """
    modules: dict[str, Module] = {}
    cpp: dict[str, CppFacts] = {}
    host_cpp: set[str] = set()
    trees = list(files)
    of_host = {folder for summaries, core in trees if core for folder in _packages(summaries)}
    for summaries, core in trees:
        facts, dead = live(summaries, host) if host is not None and not core else (summaries, {})
        # A plugin's file in a package of its host takes the place of the host's file, if it has one there.
        packages = _packages(facts) | {f"{root}/{folder}".lstrip("/") for root in _ROOTS for folder in of_host}
        # Remembered modules come first in `facts`: the order must not depend on them.
        for path in sorted(facts):
            found = facts[path]
            if found.cpp is not None:
                cpp[path] = found.cpp
                host_cpp.update((path,) if core else ())
            if found.outline is None:
                continue
            name = module_name(path.removeprefix("./"), packages)
            if name in modules or (not core and _is_copy(path, name, of_host)):
                continue
            package = path.endswith("/__init__.py") or path == "__init__.py"
            python = found.python or _EMPTY
            module = Module(
                name, path, package, core, found.outline, python, found.python is not None, dead.get(path, ())
            )
            for binding in python.bindings:
                module.bindings.setdefault(binding.name, []).append(binding)
            for function in python.functions:
                module.functions.setdefault(function.name, []).append(function)
            module.classes = {klass.name: klass for klass in python.classes}
            modules[name] = module
    index = Index(modules, cpp, host, host_cpp=host_cpp)
    if host is not None:
        _without_uninstalled(index)
    return index


def _packages(paths: Iterable[str]) -> set[str]:
    """Return the folders of the packages among files."""
    return {path.removeprefix("./").rpartition("/")[0] for path in paths if path.endswith("/__init__.py")}


def _is_copy(path: str, name: str, of_host: set[str]) -> bool:
    """Return True if the plugin's file is in a copy of a host's package that is not imported: ``third_party/host/``.

    Only a package at the top, or in a folder for packages, takes the place of the host's.
    """
    place = f"/{path}".removesuffix(".py").removesuffix("/__init__")
    above = place.removesuffix(f"/{name.replace('.', '/')}").strip("/")
    tops = {folder.rpartition("/")[2] for folder in of_host if folder.rpartition("/")[0] in _ROOTS}
    return name.partition(".")[0] in tops and above not in _ROOTS and not is_test(path)


def _without_uninstalled(index: Index) -> None:
    """Drop the overrides of plugin modules that are imported for other versions of the host only."""
    own = [module for module in index.modules.values() if not module.core]
    dead = {
        prefix for module in own for target in module.dead_imports for prefix in _prefixes(absolute(module, target))
    }
    patches = {module.name for module in own if module.facts.overrides} & dead
    for module in own if patches else ():
        if module.exact:
            for statement in module.facts.imports:
                patches.difference_update(_prefixes(absolute(module, statement.target)))
        else:
            # It may import what it mentions; the next round knows.
            words = set(module.outline.words.split())
            mentioned = {patch for patch in patches if patch.rpartition(".")[2].encode() in words}
            if mentioned:
                index.wanted.add(module.path)
                patches -= mentioned
    for name in patches:
        index.modules[name].facts = index.modules[name].facts._replace(overrides=())


def _prefixes(dotted: str) -> Iterator[str]:
    while dotted:
        yield dotted
        dotted = dotted.rpartition(".")[0]


def module_name(path: str, packages: set[str]) -> str:
    """Return the dotted name under which the file at `path` is imported, from the topmost of `packages` above it."""
    stem = path.removesuffix(".py").removesuffix("/__init__")
    parts = stem.split("/")
    for depth in range(1, len(parts) + 1):
        if "/".join(parts[:depth]) in packages:
            return ".".join(parts[depth - 1 :])
    return ".".join(parts[1:] if parts[0] == "src" and len(parts) > 1 else parts)

"""A plugin's replacements of its host's functions, classes and methods, and their callers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from verispec.static.facts import Call, Function, Param
from verispec.static.finding import Location
from verispec.static.linking.binding import bind_call, exchanged
from verispec.static.linking.classes import Hierarchy, Type
from verispec.static.linking.index import Entity, Module
from verispec.static.linking.launches import Links, PlacedCall, Replacement, place
from verispec.static.tree import is_test


@dataclass(frozen=True, slots=True)
class Substitution:
    """A function that is called instead of another.

    Attributes:
        kind: ``function``, ``class`` (its constructor) or ``method`` (an override in a subclass).
        name: The dotted name of the original.
        originals: Its definitions.
        functions: The definitions that may be called instead.
        slot: The name that a caller must read to get the replacement; empty for a method.
        types: classes of a method: the overriding class first, then its bases up to the one with the original.
        installed: place where the override is made.
    """

    kind: str
    name: str
    originals: tuple[Function, ...]
    original_location: Location
    functions: tuple[Function, ...]
    location: Location
    slot: str
    types: tuple[Type, ...]
    module: Module
    installed: Location

    @property
    def last_name(self) -> str:
        """The name that callers write."""
        return self.slot.rpartition(".")[2] if self.kind == "class" else self.name.rpartition(".")[2]

    def differs(self) -> bool:
        """Return True if some call may fit the original and not the replacement."""
        known = [_shape(original.params) for original in self.originals]
        return all(_shape(function.params) not in known for function in self.functions)

    def breaks(self, call: Call) -> bool:
        """Return True if `call` binds to an original, and to no replacement with each value in its place."""
        return any(not bind_call(call, original) for original in self.originals) and all(
            bind_call(call, function) or self.traded(call, function) for function in self.functions
        )

    def traded(self, call: Call, function: Function) -> list[tuple[str, str]]:
        """Return (parameter of the original, the one of `function` that gets its value) for values that trade places.

        Empty unless all originals that `call` binds to say the same: only parameters of the same names count.
        """
        if call.open_positional:
            return []
        found = [
            list(exchanged([p.name for p in original.params if p.kind == "p"][: len(call.positional)], function.params))
            for original in self.originals
            if not bind_call(call, original)
        ]
        return found[0] if found and all(found) else []


@dataclass(frozen=True, slots=True)
class PlainCall(PlacedCall):
    """A call of a plain function or method."""


def hierarchy(links: Links) -> Hierarchy:
    """Return the classes of all trees of `links`."""
    return Hierarchy(links.index)


def plugin_class_paths(links: Links) -> set[str]:
    """Return the files of a plugin's subclasses of host classes, and of those host classes: all must be parsed.

    Args:
        links: links of all trees.
    """
    if not any(module.core for module in links.index.modules.values()):
        return set()
    types = hierarchy(links)
    paths: set[str] = set()
    for entry in types:
        if entry.module.core or is_test(entry.module.path) or not entry.outline.bases:
            continue
        ancestors = types.ancestors(entry)
        if any(ancestor.module.core for ancestor in ancestors):
            paths.add(entry.module.path)
            paths.update(ancestor.module.path for ancestor in ancestors)
    return paths


def substitutions(links: Links) -> list[Substitution]:
    """Return all substitutions of `links` whose both sides are known."""
    return [*_replaced(links), *_overridden(links)]


def called_names(links: Links) -> set[str]:
    """Return the names whose calls must be known: those of substitutions in `links` with other parameters."""
    return {found.last_name for found in links.shared(substitutions) if found.differs()}


def calls_of(links: Links) -> dict[str, list[PlainCall]]:
    """Return all plain calls of `links` by the last name of their callee, in the files that were read for them."""
    found: dict[str, list[PlainCall]] = defaultdict(list)
    for module in links.index.modules.values():
        if module.path in links.call_paths:
            for call in module.facts.plain_calls or ():
                for target in call.targets[:1]:
                    found[target.rpartition(".")[2].lstrip("$@")].append(PlainCall(module, call))
    return found


def _replaced(links: Links) -> Iterator[Substitution]:
    index = links.index
    for replacement in links.replacements:
        override = replacement.override
        if replacement.kernel is not None or override.via or is_test(replacement.module.path):
            continue
        for entity in index.resolve(replacement.module, override.target)[:1]:
            if entity.kind == "function":
                yield from _function(links, replacement, entity)
            elif entity.kind == "class":
                yield from _class(links, replacement, entity)


def _function(links: Links, replacement: Replacement, entity: Entity) -> Iterator[Substitution]:
    original, home = entity.function, replacement.function_module
    if original is None or home is None or not replacement.functions:
        return
    originals = tuple(entity.module.functions.get(original.name, (original,)))
    functions = replacement.functions
    if any(function.decorators for function in (*originals, *functions)) or original in functions:
        return
    if "." in original.name:
        # A plain function that becomes a method takes the instance first.
        functions = tuple(f if "." in f.name else _without_first(f) for f in functions)
    yield Substitution(
        "function", f"{entity.module.name}.{original.name}", originals, place(entity.module, original), functions,
        place(home, functions[-1]), replacement.slot, (), replacement.module, replacement.location,
    )  # fmt: skip


def _class(links: Links, replacement: Replacement, entity: Entity) -> Iterator[Substitution]:
    index = links.index
    values = index.resolve(replacement.module, replacement.override.value)
    if len(values) != 1 or values[0].kind != "class" or values[0].dotted == entity.dotted:
        return
    makers = [_constructor(links, value) for value in (entity, values[0])]
    if None in makers or makers[0] == makers[1]:
        return
    (original, home), (function, own) = (maker for maker in makers if maker is not None)
    yield Substitution(
        "class", entity.dotted, (original,), place(home, original), (function,), place(own, function),
        replacement.slot, (), replacement.module, replacement.location,
    )  # fmt: skip


def _constructor(links: Links, entity: Entity) -> tuple[Function, Module] | None:
    found = links.index.member(entity, "__init__")
    if len(found) != 1 or found[0].function is None or found[0].function.decorators:
        return None
    return found[0].function, found[0].module


def _overridden(links: Links) -> Iterator[Substitution]:
    types = links.shared(hierarchy)
    for entry in types:
        if entry.module.core or is_test(entry.module.path) or not entry.module.exact:
            continue
        ancestors = types.ancestors(entry)
        if not any(ancestor.module.core for ancestor in ancestors):
            continue
        for method in entry.outline.methods:
            if method.name.startswith("__"):
                continue
            depth = next((n for n, a in enumerate(ancestors) if a.method(method.name) is not None), None)
            if depth is None or not ancestors[depth].module.core:
                continue
            base = ancestors[depth]
            originals = tuple(base.module.functions.get(f"{base.outline.name}.{method.name}", ()))
            functions = tuple(entry.module.functions.get(f"{entry.outline.name}.{method.name}", ()))
            if not originals or not functions or any(f.decorators for f in (*originals, *functions)):
                continue
            yield Substitution(
                "method", f"{base.name}.{method.name}", originals, place(base.module, originals[0]), functions,
                place(entry.module, functions[-1]), "", (entry, *ancestors[: depth + 1]), entry.module,
                place(entry.module, functions[-1]),
            )  # fmt: skip


def broken_calls(links: Links, found: Substitution) -> Iterator[tuple[PlainCall, bool]]:
    """Yield the calls that reach the replacement and fit the original only, and True for a certain one.

    Args:
        links: links of all trees.
        found: the substitution.
    """
    for plain in links.shared(calls_of).get(found.last_name, ()):
        if not found.breaks(plain.call):
            continue
        reached = _reaches_method(links, plain, found) if found.kind == "method" else _reads_slot(links, plain, found)
        if reached is not None:
            yield plain, reached


def _reads_slot(links: Links, plain: PlainCall, found: Substitution) -> bool | None:
    if len(plain.call.targets) != 1 or plain.module is found.module:
        return None
    (target,) = plain.call.targets
    if links.index.slot(plain.module, target) == found.slot:
        return True
    # A method of a class that is replaced is reached through every instance of the class.
    if target.startswith("@") and found.kind == "function" and found.slot == found.name:
        names = {entity.dotted for entity in links.index.resolve(plain.module, target)}
        return True if names == {found.name} else None
    return None


def _reaches_method(links: Links, plain: PlainCall, found: Substitution) -> bool | None:
    """Return True for a call through self in a method that the subclass inherits, False for a name of one family."""
    target = plain.call.targets[0]
    owner, _, name = target.removeprefix("@").rpartition(".")
    types = links.shared(hierarchy)
    entry = found.types[0]
    if target.startswith("@") and "." not in owner:
        for depth, holder in enumerate((entry, *types.ancestors(entry))):
            if holder.module is plain.module and holder.outline.name == owner:
                method = plain.call.scope.split(".")[1] if "." in plain.call.scope else ""
                nearer = (entry, *types.ancestors(entry))[:depth]
                hidden = [m for t in nearer if (m := t.method(method)) is not None and not m.calls_super]
                return None if hidden else True
        return None
    if target.startswith(("@", "?")) and name and found.last_name in links.shared(_family_names):
        return False
    return None


def _family_names(links: Links) -> set[str]:
    """Return the method names whose holders all descend from one class; a single word may be a method of anything."""
    types = links.shared(hierarchy)
    holders: dict[str, list[Type]] = defaultdict(list)
    for entry in types:
        for method in entry.outline.methods:
            if "_" in method.name.strip("_"):
                holders[method.name].append(entry)
    return {
        name
        for name, own in holders.items()
        if sum(set(own).isdisjoint(types.ancestors(holder)) for holder in own) == 1
    }


def _without_first(function: Function) -> Function:
    first = function.params[:1]
    return function._replace(params=function.params[1:]) if first and first[0].kind == "p" else function


def _shape(params: Iterable[Param]) -> list[tuple[str, str, bool]]:
    return [(param.name, param.kind, param.required) for param in params]

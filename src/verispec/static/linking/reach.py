"""Find the methods of a host that still run with a plugin that overrides others."""

from __future__ import annotations

from collections import defaultdict

from verispec.static.linking.binding import bind_call
from verispec.static.linking.classes import Type
from verispec.static.linking.launches import Links
from verispec.static.linking.substitutions import PlainCall, Substitution, calls_of, hierarchy, substitutions
from verispec.static.tree import is_test

Method = tuple[str, str]
"""A class by its dotted name, and a method of it."""


def unreached(links: Links) -> frozenset[str]:
    """Return the host's methods in `links` that a plugin replaces for good, and those that only such methods call.

    A method is replaced for good if a subclass in the plugin defines it without calling super. Callers are known by
    name, so that a method counts as unreached only if every caller of that name is.
    """
    types = links.shared(hierarchy)
    methods: set[Method] = set()
    callers: dict[str, set[Method]] = defaultdict(set)
    dead: set[Method] = set()
    known: dict[str, set[str]] = defaultdict(set)
    for entry in types:
        if is_test(entry.module.path):
            continue
        for method in entry.outline.methods:
            methods.add((entry.name, method.name))
            known[method.name].add(entry.module.path)
            for call in method.calls:
                callers[call].add((entry.name, method.name))
                known[call].add(entry.module.path)
        if not entry.module.core:
            dead |= _overridden(entry, types.ancestors(entry))
    mentions = _mentions(links, {name for _, name in methods if dead and callers[name] & methods})
    alive = methods - dead
    while True:
        gone = {
            method
            for method in alive
            if callers[method[1]] and callers[method[1]] <= dead and mentions[method[1]] <= known[method[1]]
        }
        if not gone:
            return frozenset(f"{owner}.{name}" for owner, name in dead)
        dead |= gone
        alive -= gone


def is_left_to_others(links: Links, plain: PlainCall, found: Substitution) -> bool:
    """Return True if the host's code around a call does not run with the plugin's replacement `found`.

    The call is in a function that the plugin replaces where it is defined. A call of a method may also be one that a
    class of the host does not take either. It may be in a function, such as the body of an op, that only overridden
    methods call.

    Args:
        links: links of all trees.
        plain: a call that binds to the original alone.
        found: a replacement.
    """
    if plain.scope in links.shared(_replaced_where_defined):
        return True
    if found.kind != "method":
        return False
    base = found.types[-1]
    for entry in links.shared(hierarchy):
        if entry.module.core and entry.method(found.last_name) and base in links.shared(hierarchy).ancestors(entry):
            own = entry.module.functions.get(f"{entry.outline.name}.{found.last_name}", ())
            if own and all(bind_call(plain.call, function) for function in own):
                return True
    return _is_called_by_overridden(links, plain, found)


def _replaced_where_defined(links: Links) -> frozenset[str]:
    return frozenset(f.name for f in links.shared(substitutions) if f.kind == "function" and f.slot == f.name)


def _is_called_by_overridden(links: Links, plain: PlainCall, found: Substitution) -> bool:
    name, home = plain.call.scope, plain.module
    if not name or "." in name or home.name not in {entry.module.name for entry in found.types}:
        return False
    calls = [call for call in (*home.facts.calls, *(home.facts.plain_calls or ())) if call.targets]
    scopes = {call.scope for call in calls if call.targets[0].rpartition(".")[2].lstrip("$@?") == name}
    elsewhere = any(
        name in {op for _, op in module.outline.ops}
        for module in links.index.modules.values()
        if module is not home and not is_test(module.path)
    )
    return bool(scopes) and not elsewhere and all(_is_overridden(scope, found) for scope in scopes)


def _is_overridden(scope: str, found: Substitution) -> bool:
    """Return True if `scope` is a method of a base of the plugin's class that a class before it replaces."""
    owner, _, method = scope.partition(".")
    before: list[Type] = []
    for entry in found.types:
        if entry.outline.name == owner and entry.module.core:
            return any((own := other.method(method)) is not None and not own.calls_super for other in before)
        before.append(entry)
    return False


def runs_its_own_way(links: Links, plain: PlainCall, found: Substitution) -> bool:
    """Return True if the plugin calls the override of `found` as its own parameters need, and no base takes that call.

    Args:
        links: links of all trees.
        plain: a call of the host.
        found: an override.
    """
    return any(
        not other.module.core
        and not is_test(other.module.path)
        and any(not bind_call(other.call, function) for function in found.functions)
        and all(bind_call(other.call, original) for original in found.originals)
        for other in links.shared(calls_of).get(found.last_name, ())
        if other is not plain
    )


def _overridden(entry: Type, ancestors: tuple[Type, ...]) -> set[Method]:
    return {
        (ancestor.name, method.name)
        for method in entry.outline.methods
        if not method.calls_super
        for ancestor in ancestors
        if ancestor.module.core and ancestor.method(method.name) is not None
    }


def _mentions(links: Links, names: set[str]) -> dict[str, set[str]]:
    """Return the files that contain each name, tests left out."""
    found: dict[str, set[str]] = defaultdict(set)
    wanted = {name.encode() for name in names}
    for module in links.index.modules.values():
        if not is_test(module.path):
            for word in wanted.intersection(module.outline.words.split()):
                found[word.decode()].add(module.path)
    return found

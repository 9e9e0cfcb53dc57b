"""Find the methods of a host that still run with a plugin that overrides others."""

from __future__ import annotations

from collections import defaultdict

from verispec.static.linking.classes import Type
from verispec.static.linking.launches import Links
from verispec.static.linking.substitutions import hierarchy
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

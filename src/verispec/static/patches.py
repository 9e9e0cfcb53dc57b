"""The patch points of a plugin: everything that it replaces in its host."""

from __future__ import annotations

from typing import Any, NamedTuple

from verispec.static.linking.index import Index
from verispec.static.linking.launches import Links, Replacement
from verispec.static.linking.substitutions import broken_calls, substitutions


class PatchPoint(NamedTuple):
    """An assignment or registration that replaces something of the host.

    Attributes:
        path, line: place of the assignment or registration.
        target: name in the host.
        kind: kind of the replacement.
        state: ``ok``, ``gone`` (the host has no such name), ``differs`` (other parameters), ``broken`` (a call of the
            host does not bind) or ``unknown``.
    """

    path: str
    line: int
    target: str
    kind: str
    state: str

    def to_json(self) -> dict[str, Any]:
        """Return the patch point as a JSON object."""
        return self._asdict()


def patch_points(links: Links) -> tuple[PatchPoint, ...]:
    """Return every patch point of `links`, sorted by place."""
    states: dict[tuple[str, str], str] = {}
    for found in links.shared(substitutions):
        if found.kind == "method":
            continue
        broken = any(True for _ in broken_calls(links, found))
        key = (found.installed.path, found.slot)
        states[key] = "broken" if broken else "differs" if found.differs() else "ok"
    points = {
        PatchPoint(
            replacement.module.path,
            replacement.override.line,
            replacement.slot,
            _kind(links.index, replacement),
            states.get((replacement.module.path, replacement.slot), _state(links.index, replacement)),
        )
        for replacement in links.replacements
        if not replacement.module.core and _host_slot(links.index, replacement.slot)
    }
    return tuple(sorted(points))


def _host_slot(index: Index, slot: str) -> bool:
    home, _ = index.split(slot)
    return home is not None and home.core


def _kind(index: Index, replacement: Replacement) -> str:
    if replacement.kernel is not None:
        return "kernel"
    kinds = {entity.kind for entity in index.resolve(replacement.module, replacement.override.target)}
    return kinds.pop() if len(kinds) == 1 else "attribute"


def _state(index: Index, replacement: Replacement) -> str:
    home, rest = index.split(replacement.slot)
    if replacement.kernel is not None or index.resolve(replacement.module, replacement.override.target):
        return "ok"
    if home is None or not home.exact or "*" in home.bindings or "__getattr__" in home.functions:
        return "unknown"
    head = rest.partition(".")[0]
    return "ok" if not head or head in home.bindings else "gone"

"""Show findings with one cause as one finding."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Final

from verispec.static.finding import Finding, Level, Side

_SHOWN: Final = 6
_ORDER: Final = {Level.ERROR: 0, Level.WARNING: 1, Level.NOTE: 2}


def fold(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return one finding for each cause among `findings`.

    Two findings have one cause if they name the same one, or if the same call disagrees with the same target in
    several ways: a fallback that lacks a parameter rejects the keyword, and shifts the arguments after it.
    """
    findings = tuple(findings)
    group = list(range(len(findings)))

    def root(number: int) -> int:
        while group[number] != number:
            group[number] = group[group[number]]
            number = group[number]
        return number

    first: dict[Hashable, int] = {}
    for number, finding in enumerate(findings):
        for key in _keys(finding):
            group[root(number)] = root(first.setdefault(key, number))
    members: dict[int, list[Finding]] = defaultdict(list)
    for number, finding in enumerate(findings):
        members[root(number)].append(finding)
    return tuple(_merged(same) for same in members.values())


def _keys(finding: Finding) -> Iterable[Hashable]:
    if finding.cause:
        yield finding.cause
        if finding.sides:
            yield finding.sides[0].location, finding.sides[-1].location


def _merged(same: list[Finding]) -> Finding:
    if len(same) == 1:
        return same[0]
    leading = min(same, key=lambda finding: (_ORDER[finding.level], finding.rule, finding.location))
    here = [finding for finding in same if finding.sides[:1] == leading.sides[:1]]
    messages = list(dict.fromkeys(f.message for f in (leading, *here) if _ORDER[f.level] == _ORDER[leading.level]))
    seen = {side.location for side in leading.sides}
    others: list[Side] = []
    for finding in same:
        side = finding.sides[0] if finding.sides else None
        if side is not None and side.location not in seen:
            seen.add(side.location)
            others.append(replace(side, label=f"{side.label} too"))
    more = f" ({len(others)} more like it)" if others else ""
    return replace(
        leading,
        message="; ".join(messages) + more,
        sides=(*leading.sides, *others[:_SHOWN]),
        also=tuple(sorted(f.fingerprint for f in same if f is not leading)),
    )

"""Compare the findings of two trees: which of them does the newer one bring?"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from verispec.static.finding import Finding, Level
from verispec.static.pipeline import Report
from verispec.static.tables import lost_entries

_WEIGHT = {Level.NOTE: 0, Level.WARNING: 1, Level.ERROR: 2}


def likeness(finding: Finding) -> tuple[str, str, str]:
    """Return the parts of `finding` that a move to another module leaves unchanged.

    Returns:
        (rule, last part of the symbol, message).
    """
    return finding.rule, _last(finding.symbol), finding.message


def new_since(now: Report, before: Report) -> tuple[Finding, ...]:
    """Return the findings of `now` that `before` does not have, neither unchanged nor moved.

    A finding with a known fingerprint is new only if its level rose. A finding has moved if a like one vanished.
    The names of the old place no longer exist then, and those of the new place are new.
    """
    known = {finding.fingerprint: _WEIGHT[finding.level] for finding in before.findings}
    present = {finding.fingerprint for finding in now.findings}
    vanished: dict[tuple[str, ...], list[Finding]] = defaultdict(list)
    for finding in before.findings:
        if finding.fingerprint not in present:
            vanished[likeness(finding)].append(finding)
    new: list[Finding] = []
    for finding in now.findings:
        if known.get(finding.fingerprint, -1) >= _WEIGHT[finding.level]:
            continue
        candidates = vanished[likeness(finding)]
        moved = next((old for old in candidates if _is_move(old, finding, now, before)), None)
        if moved is None:
            new.append(replace(finding, level=finding.level_if_new or finding.level))
        else:
            candidates.remove(moved)
    return (*new, *lost_entries(now, before))


def _is_move(old: Finding, new: Finding, now: Report, before: Report) -> bool:
    names = ((old.symbol, new.symbol), (old.scope, new.scope))
    return all(a == b or (a not in now.places and b not in before.places) for a, b in names)


def _last(dotted: str) -> str:
    return dotted.rpartition(".")[2]

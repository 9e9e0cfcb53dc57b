"""From failing cases to causes: one fault of an engine is one headline, however many cases it breaks.

Cases are folded by what a fault leaves behind. A write that is lost leaves the poison, under every
clause of the op; an exception carries its own text, under every op; a wrong value breaks the clauses
that it is about. What separates the failing cases from those that pass (``dtype=float32``) is found
by comparing their parameters, and named.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from verispec.run.record import Record

BY_OP = ("unwritten", "depends on stale memory", "crash", "timeout")
"""Kinds that are one fault of an op, whatever clause the case is about."""
BY_OUTPUT = ("overwritten", "outside", "input changed")
"""Kinds that are one fault of a tensor."""
BY_TEXT = ("raised", "binding")
"""Kinds that say themselves what is wrong; the same text under several ops is one fault."""

Params = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Cause:
    """One fault, as far as outcomes can tell.

    `case` is the smallest failing case of `clause`, the clause that the fault breaks most surely; `where`
    says which parameters separate the failing cases from passing ones, where some do.
    """

    level: str
    clause: str
    clauses: tuple[str, ...]
    kind: str
    subjects: tuple[str, ...]
    message: str
    where: str
    reach: str
    case: str
    cases: tuple[str, ...]
    issues: tuple[str, ...] = ()
    explained_by: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Gap:
    """Cases without a verdict for one reason: what an engine does not claim to do, or what could not be decided."""

    reason: str
    outcome: str
    subjects: tuple[str, ...]
    cases: tuple[str, ...]
    issue: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def fold(records: Sequence[Record]) -> tuple[Cause, ...]:
    """The causes of all failing records, errors before notes, then by the number of cases."""
    failing = [r for r in records if r.failed]
    pervasive = _pervasive(records)
    groups: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in failing:
        groups[_key(record, pervasive)].append(record)
    causes = [_cause(group, records) for group in groups.values()]
    return tuple(sorted(causes, key=lambda c: (c.level != "error", -len(c.cases), c.case)))


def gaps(records: Iterable[Record]) -> tuple[Gap, ...]:
    """What was not judged, folded by reason."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        if record.seen in ("unsupported", "inconclusive", "error"):
            groups[record.seen, normalised(record.reason)].append(record)
    found = [
        Gap(
            group[0].reason,
            outcome,
            tuple(sorted({r.case.subject for r in group})),
            tuple(r.id for r in group),
            next((r.issue for r in group if r.issue), ""),
        )
        for (outcome, _), group in groups.items()
    ]
    return tuple(sorted(found, key=lambda g: (g.outcome != "error", g.outcome, -len(g.cases), g.reason)))


def normalised(text: str) -> str:
    """An exception's text without what differs from call to call: numbers, addresses, shapes."""
    first = text.strip().partition("\n")[0]
    return re.sub(r"0x[0-9a-fA-F]+|[-+]?\d+(\.\d+)?([eE][-+]?\d+)?", "#", first)


def _pervasive(records: Sequence[Record]) -> set[str]:
    """Ops that are wrong in more than half of their cases: that is one fault, not one a clause."""
    judged = Counter(r.case.subject for r in records if r.seen == "pass" or r.failed)
    wrong = Counter(r.case.subject for r in records if r.failed and r.kind in ("value", "relation broken"))
    return {subject for subject, count in wrong.items() if 2 * count > judged[subject]}


def _key(record: Record, pervasive: set[str]) -> tuple[str, ...]:
    kind, case = record.kind, record.case
    if kind in BY_TEXT:
        return (kind, normalised(record.message))
    if kind == "crash":
        return (kind, case.subject, record.message)
    if kind in BY_OP:
        return (kind, case.subject)
    if kind in BY_OUTPUT:
        return (kind, case.subject, str(record.failure.get("output", "")))
    if kind in ("value", "relation broken"):
        return ("value", case.subject, "" if case.subject in pervasive else case.clause)
    return (kind, case.subject, case.clause)


def _cause(group: Sequence[Record], records: Sequence[Record]) -> Cause:
    subjects = {r.case.subject for r in group}
    clauses = tuple(sorted({r.case.clause for r in group}, key=_clause_order))
    beside = [r for r in records if r.case.subject in subjects and r.case.clause in clauses]
    clause = _clause_of(group, beside)
    reached = [r for r in group if r.reach]
    candidates = [r for r in reached or group if r.case.clause == clause] or reached or list(group)
    headline = min(candidates, key=_size)
    return Cause(
        level="error" if reached else "note",
        clause=headline.case.clause,
        clauses=clauses,
        kind=headline.kind,
        subjects=tuple(sorted(subjects)),
        message=headline.message,
        where=separation(
            [dict(r.case.params) for r in group], [dict(r.case.params) for r in beside if r.seen == "pass"]
        ),
        reach=headline.reach,
        case=headline.id,
        cases=tuple(r.id for r in group),
        issues=tuple(sorted({r.issue for r in group if r.issue})),
        explained_by=headline.explained_by,
    )


def _clause_of(group: Sequence[Record], beside: Sequence[Record]) -> str:
    """The clause that fails most surely; among equals the one with the fewest cases, which says the most."""
    failing, judged = Counter(r.case.clause for r in group), Counter(r.case.clause for r in beside)
    return min(failing, key=lambda c: (-failing[c] / judged[c], judged[c], _clause_order(c)))


def _clause_order(clause: str) -> tuple[str, int]:
    prefix, _, number = clause.partition("-")
    return prefix, int(number)


def _size(record: Record) -> tuple[int, int]:
    numbers = [int(v) for _, v in record.case.params if re.fullmatch(r"\d{1,9}", v)]
    return sum(numbers), len(record.id)


def separation(failing: Sequence[Params], passing: Sequence[Params]) -> str:
    """The parameters whose values tell failing from passing cases, in words; empty when none do.

    One parameter is preferred to a pair. Where no value is only ever wrong, a parameter that is the
    same in all failing cases and differs among passing ones is still worth naming.
    """
    names = [n for n in (failing[0] if failing else {}) if all(n in p for p in failing)]
    for size in (1, 2):
        for chosen in combinations(names, size):
            bad = list(dict.fromkeys(tuple(p[n] for n in chosen) for p in failing))
            good = list(dict.fromkeys(tuple(p[n] for n in chosen) for p in passing if all(n in p for n in chosen)))
            if good and not set(bad) & set(good):
                return f"fails for {_values(chosen, bad)}; passes for {_values(chosen, good)}"
    for name in names:
        wrong, right = {p[name] for p in failing}, {p[name] for p in passing if name in p}
        if len(wrong) == 1 and right - wrong:
            return f"fails only with {name}={next(iter(wrong))}"
    return ""


def _values(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if len(names) == 1:
        return f"{names[0]}={', '.join(row[0] for row in rows)}"
    return ", ".join(" ".join(f"{n}={v}" for n, v in zip(names, row, strict=True)) for row in rows)

"""The clause that a cause is reported under, of all that its cases break."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from verispec.errors import without_remark
from verispec.reference.contracts import clause_of
from verispec.report.cause import EVERY_OP
from verispec.report.severity import keeps_text
from verispec.report.traits import shared_places
from verispec.run.record import ALTERNATIVELY, AS_IF, FAULT, Record

BY_CLAUSE = ("value", "relation broken")
"""Kinds of wrong values; one fault may break several clauses."""
EXPLAINED = (*BY_CLAUSE, "unwritten", "overwritten")
"""Kinds whose message may name a mistake that gives exactly the engine's outputs."""


def reported_clause(group: Sequence[Record], judged: Sequence[Record], kind: str) -> str:
    """Return the clause that a cause is reported under.

    Prefer the clause that forbids this kind of failure and, if one op fails, its own clauses to those of every op. A
    clause without a failure of this kind does not stand for one that has some. One that leaves every text as it is does
    not stand for one on texts. Then prefer the clause that the listed mistake of most cases breaks, and one that
    governs the wrong places. A misread input breaks every clause, of which the first is the most basic.

    Next come clauses that decide the wrong output, if they fail in half of their cases. If nearly every case fails,
    take the first of them, else the first that decides it at all, else the first. Otherwise take the clause with the
    highest failure rate, and of equals the one with the fewest cases.

    Cases without a result say nothing on wrong values. A call that raises may leave them without one.
    """
    decided = [r for r in judged if r.decided] if kind in EXPLAINED else judged
    cases, wrong = (Counter(r.case.clause for r in records) for records in (decided, group))
    is_one_op = len({r.case.subject for r in group}) == 1
    every = [r for r in group if is_one_op and not r.case.clause.startswith(EVERY_OP)] or group
    own = [r for r in every if r.kind == kind] or every
    failing = Counter(r.case.clause for r in [r for r in own if not keeps_text(r)] or own)
    speaking = [c for c in failing if _forbids(c) == kind]
    if first := speaking or _of_mistake(failing, own):
        return min(first, key=clause_order)
    if governing := _governing(failing, every):
        return min(governing, key=lambda c: (-failing[c] / cases[c], clause_order(c)))
    if len(failing) > 1 and main_explanation(own) and not any(map(named_fault, own)):
        return min(failing, key=clause_order)
    deciding = _deciding(failing, own)
    mostly = [c for c in deciding if 2 * wrong[c] >= cases[c]]
    if 2 * len(group) > len(decided if deciding else judged):
        return min(mostly or deciding or failing, key=clause_order)
    return min(failing, key=lambda c: (c not in mostly, -failing[c] / cases[c], cases[c], clause_order(c)))


def _deciding(clauses: Iterable[str], group: Sequence[Record]) -> list[str]:
    """Return those of `clauses` that decide the output that is wrong in most cases of a group."""
    ((output, _),) = Counter(str(r.failure.get("output", "")) for r in group).most_common(1)
    return [
        name
        for name in clauses
        if (clause := clause_of(name)) and output in (clause.outputs[:1] if clause.places else clause.outputs)
    ]


def _governing(clauses: Iterable[str], group: Sequence[Record]) -> list[str]:
    """Return those of `clauses` that govern places which at least half of a group name as the only wrong ones."""
    remarks = [f"{without_remark(r.message)[1].partition(AS_IF)[0]}; {shared_places(group)}" for r in group]
    return [
        name
        for name in clauses
        if (clause := clause_of(name))
        and 2 * sum(any(words in remark for words in clause.places) for remark in remarks) >= len(group)
    ]


def _of_mistake(clauses: Iterable[str], group: Sequence[Record]) -> list[str]:
    """Return those of `clauses` that are broken by a listed mistake which at least half of a group name."""
    mistakes = Counter(each for r in group for each in named_fault(r).split(ALTERNATIVELY))
    main = {mistake for mistake, count in mistakes.items() if 2 * count >= len(group)}
    return [name for name in clauses if (clause := clause_of(name)) and main & set(clause.mistakes)]


def _forbids(name: str) -> str:
    clause = clause_of(name)
    return clause.forbids if clause else ""


def clause_order(clause: str) -> tuple[str, int]:
    """Return a key that sorts clauses by their contract and number."""
    prefix, _, number = clause.partition("-")
    return prefix, int(number)


def main_explanation(group: Sequence[Record]) -> str:
    """Return the mistakes that explain at least half of a group of one op's wrong values; empty if none do.

    Clauses of every op have large calls, for which no mistake is tried: they count only the cases that name one.
    """
    if len({r.case.subject for r in group}) > 1 or not all(r.kind in EXPLAINED for r in group):
        return ""
    named = [r.message.partition(AS_IF)[2] for r in group]
    if all(r.case.clause.startswith(EVERY_OP) for r in group):
        named = [said for said in named if said] or [""]
    ((said, count),) = Counter(named).most_common(1)
    return said if 2 * count >= len(named) else ""


def named_fault(record: Record) -> str:
    """Return the fault that a case names; empty if it names none."""
    return str(record.failure.get("details", {}).get(FAULT, ""))

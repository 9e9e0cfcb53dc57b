"""Group failing cases by fault: one fault of an engine is one headline, whatever the number of cases.

The kind of a failure decides its group:

- A lost write leaves the poison, under every clause of the op.
- An exception carries its own text, under every op.
- A wrong value whose case names its fault is one fault per op.
- Another wrong value breaks one clause and is one fault per clause. It is one fault of the op if most
  of its cases fail. It is one too if all failing clauses fail for the same values of one parameter.

Groups that fail under the same single clause of an op merge. So do its crashes and hangs that share a clause, and its
wrong values that one mistake explains. Notes of several ops merge if their clauses forbid the same kind of fault.
`separation` compares the parameters of failing and passing cases and names the difference (``dtype=float32``).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from verispec.cases import CaseId
from verispec.engines.protocol.source_places import CALLER, CODE, KERNEL, ORIGIN
from verispec.errors import without_remark
from verispec.reference.contracts import clause_of
from verispec.report.cause import EVERY_OP, Cause, Gap
from verispec.report.order import plain_cases, plain_first, rank, telling_first
from verispec.report.reported_clause import (
    BY_CLAUSE,
    EXPLAINED,
    clause_order,
    main_explanation,
    named_fault,
    reported_clause,
)
from verispec.report.separation import common, separation
from verispec.report.severity import severity_of
from verispec.report.shared import STRIDES, shared
from verispec.report.stopped import stopped_at
from verispec.report.traits import shared_mistake, told_together
from verispec.run.logs import LAST_CALL
from verispec.run.record import ALTERNATIVELY, AS_IF, FAULT, LOCATED, NOT_WRITTEN, OF_RULE, SAVED, Record

BY_OP = ("unwritten", "depends on stale memory", "imprecise", "crash", "timeout")
"""Kinds that are one fault per op, whatever the clause."""
ENDED = ("crash", "timeout")
"""Kinds that end a process."""
BY_OUTPUT = ("overwritten", "outside", "input changed")
"""Kinds that are one fault per tensor."""
BY_TEXT = ("raised", "binding")
"""Kinds that carry their own text; the same text under several ops is one fault."""

NUMBERS = "ANY-13"
"""The clause of every op on its random numbers."""
QUICK = 1.0
"""Seconds of a case that anybody repeats without waiting; the command itself takes longer to start."""


def rule_of(record: Record) -> str:
    """Return the text of the record's clause; empty if neither the record nor an op has it."""
    clause = clause_of(record.case.clause)
    return record.rule or (clause.text if clause else "")


def fold(records: Sequence[Record]) -> tuple[Cause, ...]:
    """Group all failing records by cause, in the order of a report."""
    records = list(_without_rare_changes(records))
    failing = [r for r in records if r.failed and not r.explained_by]
    whole = _wrong_throughout(records) | _wrong_alike(records) | _of_one_mistake(failing)
    wrong = {(r.case.subject, r.case.clause) for r in failing if r.kind in BY_CLAUSE}
    named = {(r.case.subject, named_fault(r)) for r in failing}
    faults = {r.id: _settled(r, named) or _fault_of_clause(r, named) for r in failing}
    values = {(r.case.subject, r.case.clause) for r in failing if r.kind in BY_CLAUSE and not faults[r.id]}
    laws = {(r.case.subject, r.case.clause) for r in failing if r.kind == "law" and not faults[r.id]}
    groups: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in failing:
        unnamed = laws if record.kind == "law" else values
        groups[_key(record, whole, wrong, unnamed, faults[record.id])].append(record)
    causes = [_cause(group, records) for group in _joined(groups)]
    ordered = sorted(causes, key=rank)
    reaches = _reaches(failing)
    ordered = [replace(cause, is_trigger=_is_trigger(cause, reaches)) for cause in ordered]
    consequences: dict[str, list[str]] = defaultdict(list)
    for record in records:
        if record.failed and record.explained_by and (cause := _explanation(record, ordered)):
            consequences[cause.case].append(record.id)
    complete = [
        replace(cause, consequences=tuple(consequences[cause.case]), beside=_beside(cause, ordered))
        for cause in ordered
    ]
    ranked = telling_first(sorted(shared(complete), key=rank))
    return tuple(_told_apart(plain_first(ranked, plain_cases(failing))))


def _reaches(failing: Sequence[Record]) -> dict[str, set[str]]:
    """Return the ways in which production reaches failing cases, by clause and by case."""
    found: dict[str, set[str]] = defaultdict(set)
    for record in failing:
        if record.reach:
            found[record.case.clause].add(record.reach)
            found[record.id].add(record.reach)
    return found


def _is_trigger(cause: Cause, reaches: Mapping[str, set[str]]) -> bool:
    """Return True if no case of the cause or of its clause fails that production reaches in another way.

    Cases that production does not reach are left out.
    """
    found = set().union(*(reaches[name] for name in (cause.clause, *cause.cases) if name in reaches))
    return found <= {cause.reach}


def _without_rare_changes(records: Sequence[Record]) -> Iterator[Record]:
    """Yield the records, without a change of a rule that explains few of the failing cases of its op.

    There are many changes, so that one may agree with a case by chance, or in special calls alone. One that is the
    fault explains nearly all cases.
    """
    wrong = Counter(r.case.subject for r in records if r.failed and r.kind in EXPLAINED)
    changes = Counter((r.case.subject, named_fault(r)) for r in records if r.failed and OF_RULE in named_fault(r))
    rare = {
        (op, change) for (op, change), count in changes.items() if 2 * count < wrong[op] or (count == 1 < wrong[op])
    }
    for record in records:
        if (record.case.subject, named_fault(record)) not in rare:
            yield record
            continue
        text, remark = without_remark(record.message)
        kept = "; ".join(part for part in remark.split("; ") if AS_IF not in part)
        details = {key: value for key, value in record.failure["details"].items() if key != FAULT}
        message = f"{text} ({kept})" if kept else text
        yield replace(record, failure={**record.failure, "message": message, "details": details})


def _told_apart(causes: Sequence[Cause]) -> Iterator[Cause]:
    """Yield the causes; of those with one headline, each with the parameters of its case."""
    headlines = Counter(cause.headline for cause in causes)
    for cause in causes:
        yield replace(cause, twin=cause.case.split(":", 2)[-1]) if headlines[cause.headline] > 1 else cause


def _beside(cause: Cause, causes: Sequence[Cause]) -> tuple[str, ...]:
    """Return the clauses of its own that the op of a note fails too, if the note has none of them.

    Those on strides are no reason: what they break names its fault. What fails where a random number equals its bound
    alone may be the fault of `NUMBERS`, since another number is not equal.
    """
    if _is_equality(cause):
        same = [other for other in causes if set(other.subjects) == set(cause.subjects)]
        return (NUMBERS,) if any(NUMBERS in other.clauses for other in same) else ()
    if cause.level == "error" or any(not clause.startswith(EVERY_OP) for clause in cause.clauses):
        return ()
    others = [other for other in causes if other is not cause and set(other.subjects) == set(cause.subjects)]
    if NUMBERS in cause.clauses:
        others = [other for other in others if not _is_equality(other)]
    own = {other.clause for other in others if other.fault != STRIDES and not other.clause.startswith(EVERY_OP)}
    return tuple(sorted(own, key=clause_order))


def _is_equality(cause: Cause) -> bool:
    """Return True if all cases of a cause compare a random number with a bound that it equals, or nearly."""
    params = [dict(CaseId.parse(case).params) for case in cause.cases]
    return all(any(of.get(name) in ("equal", "next") for name in ("rate", "ratio", "u")) for of in params)


def _explanation(record: Record, causes: Sequence[Cause]) -> Cause | None:
    """Return the cause of a consequence: one with the same text, else the first one of the op named first.

    What raises has its own text in its consequences, so other kinds come before it.
    """
    ops = record.explained_by.split(", ")
    possible = [cause for op in ops for cause in causes if op in cause.subjects]
    same = [cause for cause in possible if normalised(cause.message) == normalised(record.message)]
    silent = [cause for cause in possible if cause.kind not in BY_TEXT]
    return next(iter([*same, *silent, *possible]), None)


def gaps(records: Iterable[Record]) -> tuple[Gap, ...]:
    """Group the records without a result by reason."""
    groups: dict[tuple[str, str, bool], list[Record]] = defaultdict(list)
    for record in records:
        if record.seen in ("unsupported", "inconclusive", "error"):
            groups[record.seen, normalised(record.reason), record.applies].append(record)
    found = [
        Gap(
            group[0].reason if len({r.reason for r in group}) == 1 else _reason_of_all(group[0].reason),
            outcome,
            tuple(sorted({r.case.subject for r in group})),
            tuple(r.id for r in group),
            next((r.issue for r in group if r.issue), ""),
            applies,
        )
        for (outcome, _, applies), group in groups.items()
    ]
    return tuple(sorted(found, key=lambda g: (not g.applies, g.outcome != "error", g.outcome, -len(g.cases), g.reason)))


def normalised(text: str) -> str:
    """Return an exception's text without the parts that vary between calls: numbers, addresses, arguments."""
    return re.sub(r"0x[0-9a-fA-F]+|[-+]?\d+(\.\d+)?([eE][-+]?\d+)?", "#", _stem(text))


def _stem(text: str) -> str:
    """Return the first line, without a trailing parenthesis."""
    return without_remark(text.strip().partition("\n")[0])[0]


def _reason_of_all(reason: str) -> str:
    """Return the reason of several records from that of one: without a remark, but with a value in parentheses."""
    stem, line = _stem(reason), reason.strip().partition("\n")[0]
    return f"{line} and others" if re.search(r"(\bgot|\bexpected|[,:=])$", stem) else stem


def _wrong_throughout(records: Sequence[Record]) -> set[str]:
    """Return the ops that are wrong in more than half of their cases."""
    judged = Counter(r.case.subject for r in records if r.seen == "pass" or r.failed)
    wrong = Counter(r.case.subject for r in records if r.failed and r.kind in BY_CLAUSE)
    return {subject for subject, count in wrong.items() if 2 * count > judged[subject]}


def _of_one_mistake(failing: Sequence[Record]) -> set[str]:
    """Return the ops of whose wrong outputs one mistake gives nearly all."""
    wrong: dict[str, list[Record]] = defaultdict(list)
    for record in failing:
        if record.kind in EXPLAINED:
            wrong[record.case.subject].append(record)
    return {op for op, of_op in wrong.items() if shared_mistake(of_op)}


def _wrong_alike(records: Sequence[Record]) -> set[str]:
    """Return the ops whose wrong clauses all fail for the same values of one parameter and only for these."""
    clauses: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        if record.failed and record.kind in BY_CLAUSE:
            clauses[record.case.subject][record.case.clause].append(record)
    alike = set()
    for subject, wrong in clauses.items():
        group = [r for of_clause in wrong.values() for r in of_clause]
        for name in common([dict(r.case.params) for r in group]):
            values = {frozenset(dict(r.case.params)[name] for r in of_clause) for of_clause in wrong.values()}
            seen = {dict(r.case.params).get(name) for r in records if r.case.subject == subject} - {None}
            if len(wrong) > 1 and len(values) == 1 and seen - next(iter(values)):
                alike.add(subject)
    return alike


def _joined(groups: Mapping[tuple[str, ...], list[Record]]) -> list[list[Record]]:
    """Return the groups, with those merged that show under the same single clause."""
    joined: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for key, group in groups.items():
        clauses = {(r.case.subject, r.case.clause) for r in group}
        joined[key if len(clauses) > 1 or key[0] in BY_TEXT else clauses.pop()] += group
    return _alike_joined(_ends_joined(list(joined.values())))


def _ends_joined(groups: Sequence[list[Record]]) -> list[list[Record]]:
    """Return the groups, with an op's crashes and hangs under one clause as one: broken memory does either."""
    joined: list[list[Record]] = []
    for group in groups:
        clauses = {(r.case.subject, r.case.clause) for r in group}
        same = [g for g in joined if clauses & {(r.case.subject, r.case.clause) for r in g}]
        if group[0].kind in ENDED and (other := next((g for g in same if g[0].kind in ENDED), None)):
            other += group
        else:
            joined.append(group)
    return joined


def _alike_joined(groups: Sequence[list[Record]]) -> list[list[Record]]:
    """Return the groups, with those of an op as one that have one main explanation, or one wrong output.

    A wrong output counts where a clause that decides it fails, for clauses that decide others alone.
    """
    explained: dict[tuple[str, str], list[Record]] = {}
    joined: list[list[Record]] = []
    for group in groups:
        said = main_explanation(group)
        if not said or (group[0].case.subject, said) not in explained:
            joined.append(list(group))
            explained.update({(group[0].case.subject, said): joined[-1]} if said else {})
        else:
            explained[group[0].case.subject, said] += group
    for group in joined:
        wrong = _wrong_output(group)
        deciding = [other for other in joined if other and other is not group and _decides(other, wrong)]
        if len(deciding) == 1 and _decides_others(group, wrong):
            deciding[0].extend(group)
            group.clear()
    return [group for group in joined if group]


def _wrong_output(group: Sequence[Record]) -> tuple[str, str]:
    """Return the op and the output that is wrong in all cases of a group of wrong values; empty if there is none."""
    found = {(r.case.subject, str(r.failure.get("output", ""))) for r in group}
    return found.pop() if len(found) == 1 and all(r.kind in EXPLAINED for r in group) else ("", "")


def _decides(group: Sequence[Record], wrong: tuple[str, str]) -> bool:
    """Return True if a group has the wrong output, and its clauses decide it before any other."""
    clauses = [clause_of(name) for name in {r.case.clause for r in group}]
    return wrong != ("", "") and _wrong_output(group) == wrong and all(c and wrong[1] in c.outputs[:1] for c in clauses)


def _decides_others(group: Sequence[Record], wrong: tuple[str, str]) -> bool:
    """Return True if the clauses of a group decide outputs, but not the wrong one."""
    clauses = [clause_of(name) for name in {r.case.clause for r in group}]
    return all(c and c.outputs and wrong[1] not in c.outputs for c in clauses)


def _settled(record: Record, named: set[tuple[str, str]]) -> str:
    """Return the fault that a case names; of several, the one that another case of the op names alone."""
    fault = named_fault(record)
    alone = [each for each in fault.split(ALTERNATIVELY) if (record.case.subject, each) in named]
    return alone[0] if len(alone) == 1 else fault


def _fault_of_clause(record: Record, named: set[tuple[str, str]]) -> str:
    """Return the fault that the clause of a case forbids, if another case of the op names that fault."""
    clause = clause_of(record.case.clause)
    return clause.fault if clause and (record.case.subject, clause.fault) in named else ""


def _key(
    record: Record, whole: set[str], wrong: set[tuple[str, str]], unnamed: set[tuple[str, str]], fault: str
) -> tuple[str, ...]:
    """Return the group key of a record.

    Args:
        record: a failing record.
        whole: ops whose wrong values are one fault.
        wrong: (op, clause) pairs with wrong values.
        unnamed: pairs with a case of this kind that does not name its fault, which then is one with the others.
        fault: the fault that the record or its clause names; empty if neither does.
    """
    kind, case = record.kind, record.case
    if kind == "binding":  # the text before the colon names the owner
        return (kind, normalised(record.message.partition(": ")[2]))
    if kind in BY_TEXT:
        return (kind, normalised(record.message))
    if kind == "crash" and (case.subject, case.clause) not in wrong:
        return (kind, case.subject, record.message.partition(LAST_CALL)[0])
    if case.subject in whole and kind in (*BY_CLAUSE, "unwritten", "overwritten", "depends on stale memory"):
        return ("value", case.subject)  # a wrong value may equal the old one by chance
    if fault and (case.subject, case.clause) not in unnamed:
        return ("fault", case.subject, fault)
    if (kind in BY_OP and kind != "crash") or _begins_unwritten(record):
        return ("unwritten" if _begins_unwritten(record) else kind, case.subject)
    if kind in BY_OUTPUT:
        return (kind, case.subject, str(record.failure.get("output", "")))
    return ("value" if kind in (*BY_CLAUSE, "crash") else kind, case.subject, case.clause)


def _begins_unwritten(record: Record) -> bool:
    """Return True if the first of several wrong elements was not written: the others follow from it."""
    examples = record.failure.get("examples") or [{}]
    return record.kind == "value" and examples[0].get("got") == NOT_WRITTEN


def _cause(group: Sequence[Record], records: Sequence[Record]) -> Cause:
    subjects = {r.case.subject for r in group}
    clauses = tuple(sorted({r.case.clause for r in group}, key=clause_order))
    judged = [r for r in records if r.case.subject in subjects and r.case.clause in clauses]
    kind = Counter(r.kind for r in group).most_common(1)[0][0]
    clause = reported_clause(group, judged, kind)
    reached = [r for r in group if r.reach]
    of_clause = [r for r in group if r.case.clause == clause]
    wanted = [r for r in of_clause if r.kind == kind] or of_clause
    wanted = [r for r in wanted if r.reach] or wanted
    wanted = [r for r in wanted if named_fault(r)] or wanted
    wanted = _of_one_fault(wanted)
    wanted = _apart([r for r in records if r.case.subject in subjects], group, wanted) or wanted
    headline = _headline(wanted)
    norm = clause_of(clause)
    # A crash ends the process before its record has places; other cases of the op have the same.
    places = next((r.places for r in (headline, *group, *judged) if r.places), {}) if len(subjects) == 1 else {}
    return Cause(
        level="error" if reached else "note",
        clause=clause,
        clauses=clauses,
        kind=kind,
        subjects=tuple(sorted(subjects)),
        message=told_together(headline, group, [r for r in records if r.case.subject in subjects and r.failed]),
        where=_where(group, judged) or _where_of_clause(clause, group, judged),
        reach=headline.reach or next((r.reach for r in reached), ""),
        case=headline.id,
        cases=tuple(r.id for r in group),
        issues=tuple(sorted({r.issue for r in group if r.issue})),
        saved=str(headline.failure.get("details", {}).get(SAVED, "")),
        rule=rule_of(next(r for r in group if r.case.clause == clause)),
        source=norm.source if norm else "",
        fault=norm.fault if norm else "",
        named=named_fault(headline),
        located=bool(headline.failure.get("details", {}).get(LOCATED)),
        crashes=sum(r.outcome == "crash" for r in group) if kind != "crash" else 0,
        hangs=sum(r.outcome == "timeout" for r in group) if kind != "timeout" else 0,
        unreachable=norm.unreachable if norm else "",
        rare=norm.rare if norm else "",
        harmless=norm.harmless if norm else "",
        stopped=stopped_at(headline),
        kernel=places.get(KERNEL, ""),
        caller=places.get(CALLER, ""),
        code=places.get(CODE, ""),
        origin=headline.places.get(ORIGIN, ""),
        severity=severity_of(kind, subjects, group, records) if reached else "",
    )


def _headline(wanted: Sequence[Record]) -> Record:
    """Return the smallest of the cases with the explanation that at least half of them have, else the smallest of all.

    Fewer cases may have it by chance. A case that takes more than `QUICK` and twice the time of the smallest is not
    worth its explanation.
    """
    # A parameter that one case alone has, such as a special mode, would mislead about the reach of a fault of others.
    having = Counter(name for r in wanted for name, _ in r.case.params)
    usual = _usual_reach(wanted)

    def place(record: Record) -> tuple[int, bool, int, int]:
        rare = sum(having[name] == 1 for name, _ in record.case.params)
        return rare, usual not in ("", record.reach), *_size(record)

    ordered = sorted(wanted, key=place)
    smallest, said = ordered[0], Counter(filter(None, map(_explanation_in, ordered)))
    main = [text for text, count in said.most_common(1) if 2 * count >= len(ordered)]
    explained = (r for r in ordered if _explanation_in(r) in main)
    return next((r for r in explained if r.seconds <= max(QUICK, 2 * smallest.seconds)), smallest)


def _usual_reach(wanted: Sequence[Record]) -> str:
    """Return the reach of two thirds of the cases of a clause on other requests of a batch; empty for none.

    Which others they are would mislead if any change the request.
    """
    clause = clause_of(wanted[0].case.clause)
    reach, count = Counter(r.reach for r in wanted).most_common(1)[0]
    return reach if clause and clause.is_relation and 3 * count >= 2 * len(wanted) else ""


def _of_one_fault(wanted: Sequence[Record]) -> list[Record]:
    """Return the cases that name one fault alone, if it is the same and all others name it or another one."""
    alone = {fault for r in wanted if (fault := named_fault(r)) and ALTERNATIVELY not in fault}
    if len(alone) != 1 or not all(alone & set(named_fault(r).split(ALTERNATIVELY)) for r in wanted):
        return list(wanted)
    return [r for r in wanted if named_fault(r) in alone]


def _explanation_in(record: Record) -> str:
    """Return the fault that a case with wrong outputs names, or its mistakes; empty if it tells neither."""
    if record.kind == "law":
        return named_fault(record)
    return (named_fault(record) or record.message.partition(AS_IF)[2]) if record.kind in EXPLAINED else ""


def _apart(records: Sequence[Record], group: Sequence[Record], wanted: Sequence[Record]) -> list[Record]:
    """Return the cases of `wanted` that no fault of another op is likely to break too.

    It is likely for the values of parameters with which nine in ten other cases of the op are consequences.

    Args:
        records: all cases of the op.
        group: cases of the cause.
        wanted: cases of the cause that may be shown.
    """
    own = {r.id for r in group}
    others = [r for r in records if r.decided and r.id not in own]
    cases = Counter(pair for r in others for pair in r.case.params)
    broken = Counter(pair for r in others if r.failed and r.explained_by for pair in r.case.params)
    likely = {pair for pair in broken if 10 * broken[pair] >= 9 * cases[pair]}
    return [r for r in wanted if not likely & set(r.case.params)]


def _where(group: Sequence[Record], judged: Sequence[Record]) -> str:
    return separation([dict(r.case.params) for r in group], [dict(r.case.params) for r in judged if r.seen == "pass"])


def _where_of_clause(clause: str, group: Sequence[Record], judged: Sequence[Record]) -> str:
    """Return the text of `_where` for the cases of one clause, with its id; for a group that has none as a whole."""
    found = _where(*([r for r in records if r.case.clause == clause] for records in (group, judged)))
    return found and f"{clause} {found}"


def _size(record: Record) -> tuple[int, int]:
    numbers = [int(v) for _, v in record.case.params if re.fullmatch(r"\d{1,9}", v)]
    return sum(numbers), len(record.id)

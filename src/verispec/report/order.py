"""The order of a report's causes: the worst first, and of equal ones those that tell the most."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache

from verispec.cases import CaseId
from verispec.reference import contracts
from verispec.reference.contracts import clause_of
from verispec.report.cause import EVERY_OP, Cause
from verispec.report.reported_clause import BY_CLAUSE
from verispec.report.severity import SEVERITIES
from verispec.report.shared import MANY
from verispec.run.record import Record

COMPOSED = ("sampler", "generation", "serving")
"""Families of contracts of end-to-end samplers and engines, which are made of ops."""
HARM = (
    ("crash", "timeout"),
    ("outside", "input changed"),
    (*BY_CLAUSE, "law", "unwritten", "overwritten", "depends on stale memory", "raised", "binding"),
)
"""Kinds by decreasing harm: a process crashes or hangs; foreign memory is written; tokens are wrong or a call raises;
all else."""


def rank(cause: Cause) -> tuple[bool, int, int, bool, bool, bool, bool, int, str]:
    """Return the place of a cause: errors first, by severity; then by harm and by the failures that it accounts for.

    An op's own clause says more than one of every op, and comes before it. So does an op's before that of a sampler or
    a generation, which may fail because of the op. Of these, clauses that compare a request with itself beside other
    requests come last: faults of other clauses break them too. Causes that no caller can reach come after others.
    """
    severity = SEVERITIES.index(cause.severity) if cause.severity else 0
    explained = len(cause.cases) + len(cause.consequences)
    is_general = cause.clause.startswith(EVERY_OP)
    is_composed = not _ops().issuperset(cause.subjects)
    is_relation = is_composed and bool((clause := clause_of(cause.clause)) and clause.is_relation)
    is_out_of_reach = cause.level == "note" and bool(cause.unreachable)
    harm = _harm(cause.kind)
    by_kind = is_general, is_composed, is_relation, is_out_of_reach
    return cause.level != "error", severity, harm, *by_kind, -explained, cause.case


def _harm(kind: str) -> int:
    """Return the rank of a kind of failure in `HARM`."""
    return next((rank for rank, kinds in enumerate(HARM) if kind in kinds), len(HARM))


def telling_first(causes: Sequence[Cause]) -> list[Cause]:
    """Return the causes in their order, but for those of one clause, level, severity and harm.

    Of these, the ones that name the fault or say where it shows take the first places. So they do among the errors of
    samplers and generations with one parameter.
    """
    ordered = list(causes)
    for alike in (_clause_and_rank, _parameter_and_rank):
        ordered = _permuted(ordered, alike, lambda cause: (not cause.tells, False))
    return ordered


def plain_first(causes: Sequence[Cause], plain: set[str]) -> list[Cause]:
    """Return the causes in order, but of the errors of one op the telling ones first, then those with a plain case."""
    return _permuted(causes, _op_and_rank, lambda c: (not c.tells, plain.isdisjoint(c.cases)))


def plain_cases(failing: Sequence[Record]) -> set[str]:
    """Return the cases that fail under the condition which the most clauses of their op share, `MANY` at least.

    It is the plain one: others belong to few clauses, such as top-k to those on limits.
    """
    clauses: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for r in failing:
        if r.reach and r.case.subject in _ops() and not r.case.clause.startswith(EVERY_OP):
            clauses[r.case.subject][r.reach].add(r.case.clause)
    plain = {op: max(reaches, key=lambda reach: len(reaches[reach])) for op, reaches in clauses.items()}
    return {
        r.id
        for r in failing
        if (reach := plain.get(r.case.subject)) and r.reach == reach and len(clauses[r.case.subject][reach]) >= MANY
    }


def _permuted(
    causes: Sequence[Cause], alike: Callable[[Cause], tuple[str, ...]], key: Callable[[Cause], tuple[bool, bool]]
) -> list[Cause]:
    """Return the causes, with those that are alike sorted among the places that they have."""
    ordered = list(causes)
    found: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, cause in enumerate(causes):
        found[alike(cause) or (cause.case,)].append(place)
    for places in found.values():
        for place, cause in zip(places, sorted((causes[p] for p in places), key=key), strict=True):
            ordered[place] = cause
    return ordered


def _clause_and_rank(cause: Cause) -> tuple[str, ...]:
    return cause.clause, cause.level, cause.severity, str(_harm(cause.kind))


def _op_and_rank(cause: Cause) -> tuple[str, ...]:
    """Return the op and the rank of an error of an op's own clause; empty for another cause."""
    if cause.level != "error" or not _ops().issuperset(cause.subjects) or cause.clause.startswith(EVERY_OP):
        return ()
    return *cause.subjects, cause.severity, str(_harm(cause.kind))


def _parameter_and_rank(cause: Cause) -> tuple[str, ...]:
    """Return the parameter and the rank of an error of a sampler or a generation; empty for another cause."""
    parameter = dict(CaseId.parse(cause.case).params).get("parameter", "")
    if cause.level != "error" or not parameter or _ops().issuperset(cause.subjects):
        return ()
    return parameter, cause.severity, str(_harm(cause.kind))


@cache
def _ops() -> frozenset[str]:
    return frozenset(name for name in contracts.names() if contracts.load(name).family not in COMPOSED)

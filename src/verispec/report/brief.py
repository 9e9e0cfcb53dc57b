"""The causes that a user can meet, one line each, and the way to run their commands."""

from __future__ import annotations

from collections.abc import Sequence

from verispec.reference import contracts
from verispec.report.causes import BY_CLAUSE, Cause, clause_of
from verispec.report.certificate import BEST
from verispec.report.verdict import RunSummary
from verispec.run.logs import LAST_CALL

TITLE = "What users of speculative decoding can meet"
INSTALL = (
    "The commands of this report need verispec beside the engine, and it needs Python 3.11 and a C++17 compiler. To "
    "install it: git clone https://github.com/verispec/verispec, then pip install './verispec[judge,generate]'."
)
_WRONG = (*BY_CLAUSE, "law", "unwritten", "overwritten", "depends on stale memory")
"""Kinds of failure whose message shows elements of tensors, and not what they lead to."""


def met(causes: Sequence[Cause]) -> tuple[Cause, ...]:
    """Return the errors, which a user can meet. A single cause needs no list."""
    return tuple(cause for cause in causes if len(causes) > 1 and cause.level == "error")


def introduction(verdict: RunSummary) -> str:
    """Return the difference of errors and notes, if there are both, and the error to repair first."""
    notes = sum(cause.level == "note" for cause in verdict.causes)
    apart = "Real callers reach these errors. The notes below have no known caller, a rare one, or do no harm."
    return " ".join(filter(None, [apart if notes else "", _start_with(verdict)]))


def _start_with(verdict: RunSummary) -> str:
    first = met(verdict.causes)[0]
    if not first.consequences:
        return ""
    count = len(first.cases) + len(first.consequences)
    failing = sum(len(cause.cases) + len(cause.consequences) for cause in verdict.causes)
    return (
        f"Start with {first.clause}: with its consequences it is {count} of the {failing} failing cases. Run again "
        "after its repair, since it may hide others."
    )


def brief_line(cause: Cause) -> str:
    """Return the trigger of an error, its effect on a user or its fault, its clause and its place, as one line."""
    place = cause.kernel or cause.caller
    seen = f"Effect: {effect(cause)}."
    if cause.named:
        seen = f"Fault: {cause.named}. Seen: {cause.message.removeprefix(f'{cause.named}: ')}."
    ops = cause.subjects[0] if len(cause.subjects) == 1 else f"{len(cause.subjects)} ops"
    at = f", in the function at {place}" if place else ""
    return f"Trigger: {cause.reach}. {seen} Clause: {cause.clause} of {ops}{at}."


def effect(cause: Cause) -> str:
    """Return the effect of a cause on a user."""
    message = cause.message.partition(LAST_CALL)[0].partition(BEST)[0].rstrip(".")
    if cause.kind == "raised":
        return f"the step raises {message}"
    clause = clause_of(cause.clause)
    if cause.kind not in _WRONG or clause is None:
        return message
    op = next((contracts.load(name) for name in cause.subjects if name in contracts.names()), None)
    return clause.effect or (op.effect if op else "") or message

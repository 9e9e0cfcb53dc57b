"""The causes that a user can meet, one line each, and the way to run their commands."""

from __future__ import annotations

from collections.abc import Sequence

from verispec.reference import contracts
from verispec.report.causes import BY_CLAUSE, Cause, clause_of
from verispec.report.certificate import BEST
from verispec.run.logs import LAST_CALL

TITLE = "What a user can meet"
INSTALL = (
    "The commands of this report need verispec beside the engine, and it needs Python 3.11 and a C++17 compiler. To "
    "install it: git clone https://github.com/verispec/verispec, then pip install './verispec[judge,generate]'."
)
_WRONG = (*BY_CLAUSE, "law", "unwritten", "overwritten", "depends on stale memory")
"""Kinds of failure whose message shows elements of tensors, and not what they lead to."""


def met(causes: Sequence[Cause]) -> tuple[Cause, ...]:
    """Return the causes that a user can meet: all errors, then the notes that callers reach rarely.

    A single cause needs no list.
    """
    found = [cause for cause in causes if len(causes) > 1 and (cause.level == "error" or cause.rare)]
    return tuple(sorted(found, key=lambda cause: cause.level != "error"))


def brief_line(cause: Cause) -> str:
    """Return the trigger of a cause, its effect on a user, its clause and its place, as one line."""
    trigger = f"Trigger: {cause.reach}" if cause.reach else f"Rare trigger: {cause.rare}"
    place = cause.kernel or cause.caller
    named = f" Fault: {cause.named}." if cause.named else ""
    ops = cause.subjects[0] if len(cause.subjects) == 1 else f"{len(cause.subjects)} ops"
    at = f", at {place}" if place else ""
    return f"{trigger}. Effect: {effect(cause)}.{named} Clause: {cause.clause} of {ops}{at}."


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

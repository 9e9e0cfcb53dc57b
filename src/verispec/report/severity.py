"""Severity of an error: how bad it is for the users whose requests reach it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from verispec.reference import contracts
from verispec.reference.contracts import clause_of
from verispec.run.record import Record

HIGH, MEDIUM, LOW = "high", "medium", "low"
SEVERITIES = (HIGH, MEDIUM, LOW)
"""Severities by decreasing harm."""
MEANING = (
    "The severity of an error is high if a process or a step fails, memory is damaged, or most tested cases of an op "
    "are wrong; low if only drafts are worse and text stays right; else medium."
)
BREAKING = ("crash", "timeout", "outside", "input changed", "raised", "binding")
"""Kinds of failure that end a step or a process, or damage memory."""


def severity_of(kind: str, subjects: Iterable[str], group: Sequence[Record], records: Sequence[Record]) -> str:
    """Return the severity of an error, as `MEANING` says.

    Args:
        kind: kind of the failure.
        subjects: ops of the error.
        group: failing cases of the error.
        records: all cases of the run.
    """
    if kind in BREAKING:
        return HIGH
    ops = set(subjects)
    if all(op in contracts.names() and contracts.load(op).keeps_text for op in ops) or all(map(keeps_text, group)):
        return LOW
    tested = sum(r.decided and r.case.subject in ops for r in records)
    return HIGH if 2 * len(group) > tested else MEDIUM


def keeps_text(record: Record) -> bool:
    """Return True if a fault that breaks the record's clause changes no text."""
    clause = clause_of(record.case.clause)
    return clause is not None and clause.keeps_text

"""The cases of an older run that fit into a time, so that a gate is quick: as many as possible, of every clause one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verispec.run.record import Record


@dataclass(frozen=True, slots=True)
class Chosen:
    """Cases of an older run.

    Attributes:
        cases: ids, in the order of that run.
        seconds: sum of the cases' own times.
        missing: ops and clauses, as ``suite/op:clause``, of which no case fits.
    """

    cases: tuple[str, ...]
    seconds: float
    missing: tuple[str, ...]


def quickest(records: Sequence[Record], seconds: float) -> Chosen:
    """Choose cases that took `seconds` together at most: the quickest of each clause, then all others by their time.

    Args:
        records: results of an older run.
        seconds: largest sum of the chosen cases' own times.
    """
    by_time = sorted(records, key=lambda record: (record.seconds, record.id))
    first: dict[str, Record] = {}
    for record in by_time:
        first.setdefault(_clause(record), record)
    firsts = {record.id for record in first.values()}
    chosen: set[str] = set()
    spent = 0.0
    for record in (*first.values(), *(record for record in by_time if record.id not in firsts)):
        if spent + record.seconds <= seconds:
            chosen.add(record.id)
            spent += record.seconds
    missing = tuple(clause for clause, record in sorted(first.items()) if record.id not in chosen)
    return Chosen(tuple(record.id for record in records if record.id in chosen), spent, missing)


def _clause(record: Record) -> str:
    return ":".join(record.id.split(":", 2)[:2])

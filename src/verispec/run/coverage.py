"""The coverage floor: the minimum that a run must test for exit code 0."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from verispec.errors import VerispecError
from verispec.reference.contracts import clause_of
from verispec.run import runfile
from verispec.run.record import Record

CLAIMED = "claimed"
"""The default floor: at least one decided case of every op that the engine offers, and of every premise."""
SHOWN = 5
"""Names that a sentence lists."""


@dataclass(frozen=True, slots=True)
class Floor:
    """The minimum that a run must decide.

    Attributes:
        claimed: True if every offered op needs a decided case, and every clause on which others rest.
        count: the smallest number of decided cases.
        share: the smallest share of decided cases, from 0 to 1.
        cases: ids of cases that must be decided.
        text: the floor as it was written.
    """

    claimed: bool = True
    count: int = 0
    share: float = 0.0
    cases: frozenset[str] = frozenset()
    text: str = CLAIMED


CLAIMED_OPS = Floor()
"""The default floor."""


def parse_floor(text: str) -> Floor:
    """Return the floor that `--min-judged` names.

    Args:
        text: "claimed", a number of cases, a percentage such as 90%, or the path of a results file whose decided cases
            must be decided again. 0 switches the floor off.

    Raises:
        VerispecError: V-RUN-FLOOR when `text` is none of these; V-RUN-READ for a damaged results file.
    """
    if text == CLAIMED:
        return CLAIMED_OPS
    if re.fullmatch(r"\d+", text):
        return Floor(claimed=int(text) > 0, count=int(text), text=text)
    if (match := re.fullmatch(r"(\d+(\.\d+)?)%", text)) and float(match[1]) <= 100:  # a share above can never hold
        return Floor(share=float(match[1]) / 100, text=text)
    if Path(text).is_file():
        decided = frozenset(record.id for record in runfile.read(Path(text)).records if record.decided)
        return Floor(cases=decided, text=text)
    raise VerispecError(
        "V-RUN-FLOOR",
        f"{text!r} is not a coverage floor",
        where="--min-judged",
        hint=f"write {CLAIMED}, a number of cases, a percentage such as 90%, or the path of a results file",
    )


def shortfalls(floor: Floor, records: Sequence[Record], lost: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each way in which a complete run tested less than `floor`.

    Args:
        floor: required coverage.
        records: all records of the run.
        lost: cases that the engine rejected after other cases, and answers in a fresh process.
    """
    if lost:
        yield (
            f"the engine rejected {_listed(lost, 'case')} after other cases, but answers in a fresh process: "
            "what it rejects depends on what ran before"
        )
    decided = [record for record in records if record.decided]
    if floor.claimed:
        subjects = dict.fromkeys(r.case.subject for r in records if r.offered and not r.issue and not r.decided)
        silent = [name for name in subjects if all(r.case.subject != name for r in decided)]
        if silent:
            yield f"no case was decided of {_listed(silent, 'op')}, which the engine offers"
        yield from _premises(records)
    if len(decided) < floor.count:
        yield f"{len(decided):,} cases were decided, fewer than {floor.count:,} (--min-judged)"
    if len(decided) < floor.share * len(records):
        yield f"{len(decided):,} of {len(records):,} cases were decided, less than {floor.text} (--min-judged)"
    if missing := sorted(floor.cases - {record.id for record in decided}):
        yield f"{_listed(missing, 'case')} decided in {floor.text} not decided here"


def _premises(records: Sequence[Record]) -> Iterator[str]:
    """Yield a sentence for each clause on which others rest and of which offered cases, but no decided one, ran."""
    decided = {record.case.clause for record in records if record.decided}
    open_ = {r.case.clause: r for r in reversed(records) if r.offered and not r.issue}
    for name, first in open_.items():
        clause = clause_of(name)
        if clause and clause.is_premise and name not in decided:
            yield f"no case was decided of {name}, without which other passes prove little: {first.reason}"


def _listed(names: Sequence[str], noun: str) -> str:
    shown = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
    return f"{len(names):,} {noun}{'' if len(names) == 1 else 's'} ({shown})"

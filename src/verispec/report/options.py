"""Options of a generator that an engine honours, rejects or ignores (clause GEN-37)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from verispec.cases import CaseId
from verispec.run.record import Record

CASES = "e2e/options"
"""The cases that probe options."""

_ANSWERS = {"pass": "honoured", "unsupported": "refused", "fail": "not honoured", "inconclusive": "not visible"}


@dataclass(frozen=True, slots=True)
class OptionRow:
    """One option.

    Attributes:
        option: its name in `LoadOptions`, or that name and a value.
        answer: honoured, refused, not honoured, not visible from outside, or the outcome of a probe that broke off.
        seen: the engine's refusal, or the behaviour instead of the option's effect.
        case: id of the probe.
    """

    option: str
    answer: str
    seen: str
    case: str


def option_rows(records: Sequence[Record]) -> list[OptionRow]:
    """Return a row for each probe among `records`, in their order by name."""
    rows = []
    for record in records:
        option = dict(CaseId.parse(record.id).params)["option"]
        seen = str((record.failure or {}).get("message") or record.reason or "")
        rows.append(OptionRow(option, _ANSWERS.get(record.outcome, str(record.outcome)), seen, record.id))
    return sorted(rows, key=lambda row: row.option)


def as_text(engine: str, rows: Sequence[OptionRow]) -> str:
    """Return the table for people."""
    width = max((len(row.option) for row in rows), default=0)
    lines = [f"{'option':<{width}}  {engine}"]
    lines += [f"{row.option:<{width}}  {row.answer:<12}  {row.seen}".rstrip() for row in rows]
    return "\n".join(lines)


def as_json(engine: str, rows: Sequence[OptionRow]) -> dict[str, Any]:
    """Return the table as data."""
    return {"engine": engine, "options": [asdict(row) for row in rows]}

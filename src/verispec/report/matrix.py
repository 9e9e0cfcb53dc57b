"""The matrix of several runs: one row per op and clause, one cell per run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from verispec.report.causes import rule_of
from verispec.report.verdict import RunSummary
from verispec.run.record import Record


def matrix(summaries: Sequence[RunSummary]) -> Iterator[dict[str, Any]]:
    """Yield one row per op: its suite, a cell per run, and its clauses with a cell per run.

    `absent` is True for an op that none of the engines has.
    """
    first = {(r.case.subject, r.case.clause): r for summary in reversed(summaries) for r in summary.run.records}
    rules = {name: rule_of(record) for name, record in first.items()}
    tallies = [_tally(summary.run.records) for summary in summaries]
    ops = sorted({op for tally in tallies for op in tally})
    for suite, op in ops:
        cells = [_cell(sum(tally.get((suite, op), {}).values(), Counter())) for tally in tallies]
        clauses = sorted({c for tally in tallies for c in tally.get((suite, op), {})}, key=_clause_order)
        yield {
            "suite": suite,
            "op": op,
            "absent": all(cell["state"] in ("absent", "none") for cell in cells),
            "cells": cells,
            "clauses": [
                {
                    "clause": clause,
                    "text": rules[op, clause],
                    "cells": [_cell(tally.get((suite, op), {}).get(clause, Counter())) for tally in tallies],
                }
                for clause in clauses
            ],
        }


def _tally(records: Sequence[Record]) -> dict[tuple[str, str], dict[str, Counter[str]]]:
    found: dict[tuple[str, str], dict[str, Counter[str]]] = {}
    for record in records:
        case = record.case
        of_op = found.setdefault((case.suite, case.subject), {})
        of_op.setdefault(case.clause, Counter())[_state(record)] += 1
    return found


def _state(record: Record) -> str:
    if record.outcome == "xfail":
        return "known"
    if record.failed:
        return "fail"
    if record.seen == "pass":
        return "pass"
    return "open" if record.applies else "absent"


_NAMES = {"known": "known", "open": "not tested", "absent": "not applicable"}
"""Names of the states without a failing and a passing case."""


def _cell(counts: Counter[str]) -> dict[str, Any]:
    """Return the content of a cell of the matrix: a state, its text, and the share of each outcome for its bar."""
    total = sum(counts.values())
    if not total:
        return {"state": "none", "text": "not run", "shares": []}
    if counts["fail"]:
        state, text = "fail", f"{counts['fail']:,} of {total:,} fail"
    elif counts["pass"]:
        rest = f", {total - counts['pass']:,} other" if counts["pass"] < total else ""
        state, text = "pass", f"{counts['pass']:,} pass{rest}"
    else:
        state = next(name for name in ("known", "open", "absent") if counts[name])
        text = f"{counts[state]:,} {_NAMES[state]}"
    shares = [(name, round(100 * counts[name] / total, 2)) for name in ("fail", "known", "open", "absent", "pass")]
    return {"state": state, "text": text, "shares": [(name, share) for name, share in shares if share]}


def _clause_order(clause: str) -> tuple[str, int]:
    prefix, _, number = clause.partition("-")
    return prefix, int(number)

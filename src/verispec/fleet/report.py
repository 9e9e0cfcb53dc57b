"""The report of a fleet: the state and counts of each cell, the matrix of ops, and one exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from verispec import exits
from verispec.fleet.cell import CellRun
from verispec.fleet.driver import FORMAT, cell_state
from verispec.report.matrix import matrix
from verispec.report.text import plural
from verispec.report.verdict import RunSummary, summarise
from verispec.terminal import COLUMNS, printable

_STYLE = {"fail": "red", "known": "cyan", "open": "yellow", "absent": "dim", "none": "dim", "pass": ""}


class FleetReport:
    """A fleet that is over.

    Args:
        cells: cells in the order of the plan.
        errors_only: True if notes do not change the exit code.
    """

    def __init__(self, cells: Sequence[CellRun], *, errors_only: bool = False) -> None:
        self.cells = cells
        self.errors_only = errors_only
        self.summaries = {cell.plan.name: summarise(cell.run) for cell in cells if cell.run}

    @property
    def runs(self) -> list[RunSummary]:
        """The runs of the cells that have results."""
        return list(self.summaries.values())

    def exit_of(self, cell: CellRun) -> int:
        """Return the exit code that the cell's run alone would have."""
        summary = self.summaries.get(cell.plan.name)
        return summary.exit_code(errors_only=self.errors_only) if summary else exits.CANNOT_TELL

    @property
    def exit_code(self) -> int:
        """BAD if a cell is, else CANNOT_TELL if one is, else GOOD."""
        codes = [self.exit_of(cell) for cell in self.cells]
        return next((code for code in (exits.BAD, exits.CANNOT_TELL) if code in codes), exits.GOOD)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        cells = [
            {
                **cell_state(cell),
                "file": str(cell.path),
                "counts": dict(self.summaries[cell.plan.name].counts) if cell.plan.name in self.summaries else {},
                "causes": [cause.to_json() for cause in self.summaries[cell.plan.name].causes]
                if cell.plan.name in self.summaries
                else [],
                "exit": self.exit_of(cell),
            }
            for cell in self.cells
        ]
        rows = [
            {
                "suite": row["suite"],
                "op": row["op"],
                "cells": {
                    name: {"state": entry["state"], "text": entry["text"]}
                    for name, entry in zip(self.summaries, row["cells"], strict=True)
                },
            }
            for row in matrix(self.runs)
        ]
        return {"format": FORMAT, "cells": cells, "matrix": rows, "exit": self.exit_code}


def print_fleet(report: FleetReport, console: Console) -> None:
    """Print the report; if the output is not a terminal, as plain lines."""
    shown = console if console.is_terminal else Console(file=console.file, width=max(COLUMNS, 40 * len(report.cells)))
    for part in (_cells(report), Text(), _ops(report), Text()):
        shown.print(part, highlight=False)
    for cell in report.cells:
        if cell.reason:
            shown.print(
                Text(printable(f"{cell.plan.name}: {cell.reason}"), style="red"), highlight=False, soft_wrap=True
            )
    shown.print(Text(f"exit {report.exit_code}"), highlight=False)


def _cells(report: FleetReport) -> RenderableType:
    table = Table(box=None, pad_edge=False)
    for name in ("cell", "engine", "state"):
        table.add_column(name)
    for name in ("pass", "fail", "known", "undecided", "causes", "exit"):
        table.add_column(name, justify="right")
    for cell in report.cells:
        summary = report.summaries.get(cell.plan.name)
        counts = _counts(summary) if summary else ("",) * 5
        table.add_row(Text(cell.plan.name), Text(_engine(cell)), str(cell.state), *counts, str(report.exit_of(cell)))
    return table


def _engine(cell: CellRun) -> str:
    if cell.run is None:
        return cell.plan.plan.engine
    engine: Mapping[str, Any] = cell.run.header["engine"]
    return f"{engine['name']} {engine['version']} ({engine['device']})"


def _counts(summary: RunSummary) -> tuple[str, ...]:
    known = summary.counts.get("xfail", 0)
    passed = sum(summary.counts.get(outcome, 0) for outcome in ("pass", "xpass"))
    undecided = summary.undecided + summary.absent
    numbers = (passed, summary.failures, known, undecided, len(summary.causes))
    return tuple(f"{number:,}" for number in numbers)


def _ops(report: FleetReport) -> RenderableType:
    rows = list(matrix(report.runs))
    if not rows:
        return Text("no cell has results")
    table = Table(box=None, pad_edge=False, title=plural(len(rows), "op"), title_justify="left")
    table.add_column("op")
    for name in report.summaries:
        table.add_column(Text(name), no_wrap=True)
    for row in rows:
        cells = [Text(cell["text"], style=_STYLE[cell["state"]]) for cell in row["cells"]]
        table.add_row(f"{row['suite']}/{row['op']}", *cells)
    return table

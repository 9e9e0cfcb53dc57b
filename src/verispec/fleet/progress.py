"""Progress of a fleet on stderr: a table on a terminal, otherwise a line per cell that changed, now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from verispec.fleet.cell import CellRun
from verispec.fleet.driver import Watcher, cell_state
from verispec.run.progress import EVERY

REDRAW = 1.0
"""Seconds between two drawings of the table."""
_STYLE = {"done": "green", "failed": "bold red", "stopped": "yellow", "running": "bold"}


class CellLines:
    """Prints a line for each cell whose state changed, and for those that run every `EVERY` seconds."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[str, str]] = {}
        self._last = time.monotonic()

    def look(self, cells: Sequence[CellRun]) -> None:
        """Print the changes."""
        now = time.monotonic()
        due = now - self._last >= EVERY
        if due:
            self._last = now
        for cell in cells:
            seen = (str(cell.state), cell.reason)
            if self._shown.get(cell.plan.name) != seen or (due and cell.running):
                self._shown[cell.plan.name] = seen
                print(line_of(cell_state(cell)), file=sys.stderr, flush=True)

    def close(self) -> None:
        """Do nothing: lines stay."""


class LiveTable:
    """Draws the states of all cells in place."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, transient=True, auto_refresh=False)
        self._live.start()
        self._last = 0.0

    def look(self, cells: Sequence[CellRun]) -> None:
        """Draw the table again."""
        now = time.monotonic()
        if now - self._last >= REDRAW:
            self._last = now
            self._live.update(table_of([cell_state(cell) for cell in cells]), refresh=True)

    def close(self) -> None:
        """Remove the table."""
        self._live.stop()


def line_of(state: Mapping[str, Any]) -> str:
    """Return the state of a cell as one line."""
    counted = f", {state['done']:,} of {state['total']:,} cases, {state['failing']:,} failing" if state["total"] else ""
    reason = f": {' '.join(state['reason'].split())[:300]}" if state["reason"] else ""
    return f"{state['cell']}  {state['state']}{counted}{reason}"


def table_of(states: Sequence[Mapping[str, Any]]) -> Table:
    """Return the states of cells as a table."""
    table = Table(box=None, pad_edge=False)
    for name in ("cell", "state"):
        table.add_column(name)
    for name in ("cases", "failing", "pieces"):
        table.add_column(name, justify="right")
    table.add_column("")
    for row in _rows(states):
        table.add_row(*row)
    return table


def _rows(states: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    for state in states:
        style = _STYLE.get(state["state"], "")
        shown = f"[{style}]{state['state']}[/]" if style else state["state"]
        cases = f"{state['done']:,} of {state['total']:,}" if state["total"] else ""
        reason = state["reason"].partition("\n")[0][:80].replace("[", r"\[")
        yield state["cell"], shown, cases, f"{state['failing']:,}", f"{state['pieces']:,}", reason


def watcher() -> Watcher:
    """Return the progress display for this stderr."""
    console = Console(stderr=True)
    return LiveTable(console) if console.is_terminal else CellLines()

"""Progress of a run: a bar on a terminal, otherwise a plain line now and then; on stderr, as stdout has the report."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from verispec.run.record import Record
from verispec.terminal import COLUMNS, wrapped

EVERY = 10.0
"""Seconds between two plain lines: often enough to show life in a CI log, seldom enough to read it."""


class ProgressListener(Protocol):
    """Receives the events of a run; a context manager around it."""

    def __enter__(self) -> ProgressListener: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...
    def expect(self, total: int, done: Sequence[Record]) -> None:
        """Receive the number of cases, and the records of those that have a result already."""

    def writing(self, path: Path) -> None:
        """Receive the path of the results file, which has no case yet."""

    def waiting(self, text: str) -> None:
        """Receive the reason for waiting."""

    def judged(self, record: Record) -> None:
        """Receive the result of a case."""

    def explaining(self, op: str, cases: int) -> None:
        """Receive how many failing cases run again with the reference's kernel instead of the engine's `op`."""

    def again(self, record: Record) -> None:
        """Receive the result of a case that ran again."""


class Tally:
    """Counts of results so far."""

    def __init__(self) -> None:
        self.total = self.done = self.failing = 0

    def expect(self, total: int, done: Sequence[Record]) -> None:
        """Set the number of cases, and count those that have a result already."""
        self.total = total
        for record in done:
            self.add(record)

    def add(self, record: Record) -> None:
        """Count the result of a case."""
        self.done += 1
        self.failing += record.failed and record.outcome != "xfail"


class Silent:
    """Shows nothing: for a run whose progress another process shows."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def expect(self, total: int, done: Sequence[Record]) -> None:
        """Ignore it."""

    def writing(self, path: Path) -> None:
        """Ignore it."""

    def waiting(self, text: str) -> None:
        """Ignore it."""

    def judged(self, record: Record) -> None:
        """Ignore it."""

    def explaining(self, op: str, cases: int) -> None:
        """Ignore it."""

    def again(self, record: Record) -> None:
        """Ignore it."""


class Lines:
    """Prints plain lines, for logs."""

    def __init__(self) -> None:
        self._tally = Tally()
        self._began = self._last = time.monotonic()

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def expect(self, total: int, done: Sequence[Record]) -> None:
        """Print the number of cases."""
        self._tally.expect(total, done)
        already = f", {len(done):,} of them done before" if done else ""
        _log(f"{total:,} cases{already}")

    def writing(self, path: Path) -> None:
        """Print the path of the results file."""
        _log(_run_file(path))

    def waiting(self, text: str) -> None:
        """Print the reason for waiting."""
        self._last = time.monotonic()
        _log(text)

    def judged(self, record: Record) -> None:
        """Count the result, and print the counts every `EVERY` seconds."""
        self._tally.add(record)
        self._now_and_then("cases", record)

    def explaining(self, op: str, cases: int) -> None:
        """Print the number of cases that run again."""
        self._tally = Tally()
        self._tally.expect(cases, ())
        self._last = time.monotonic()
        again = "1 failing case" if cases == 1 else f"{cases:,} failing cases"
        _log(f"running {again} again with the reference's {op}")

    def again(self, record: Record) -> None:
        """Count the result, and print the counts every `EVERY` seconds."""
        self._tally.add(record)
        self._now_and_then("cases run again", record)

    def _now_and_then(self, what: str, record: Record) -> None:
        now, tally = time.monotonic(), self._tally
        if now - self._last >= EVERY:
            self._last = now
            counts = f"{tally.done:,} of {tally.total:,} {what}, {tally.failing:,} failing"
            _log(f"{counts}, {now - self._began:.0f} s ({record.case.subject})")


class Bar:
    """Draws a bar with the op, counts and the remaining time."""

    def __init__(self, console: Console) -> None:
        self._tally = Tally()
        self._progress = Progress(
            TextColumn("{task.description:<32}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[failing]} failing"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID = self._progress.add_task("collecting", total=None, failing=0)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._progress.stop()

    def expect(self, total: int, done: Sequence[Record]) -> None:
        """Set the length of the bar."""
        self._tally.expect(total, done)
        self._progress.update(self._task, description="starting the engine", total=total, completed=len(done))

    def writing(self, path: Path) -> None:
        """Print the path of the results file above the bar."""
        self._progress.console.print(_run_file(path), soft_wrap=True, highlight=False, markup=False)

    def waiting(self, text: str) -> None:
        """Show the reason for waiting beside the bar."""
        self._progress.update(self._task, description=text)

    def judged(self, record: Record) -> None:
        """Advance the bar."""
        self._tally.add(record)
        self._progress.update(
            self._task,
            description=record.case.subject,
            completed=self._tally.done,
            failing=self._tally.failing,
        )

    def explaining(self, op: str, cases: int) -> None:
        """Begin a new bar for the cases that run again."""
        self._tally = Tally()
        self._tally.expect(cases, ())
        self._progress.reset(self._task, description=f"again: reference's {op}", total=cases, failing=0)

    def again(self, record: Record) -> None:
        """Advance the bar."""
        self._tally.add(record)
        self._progress.update(self._task, completed=self._tally.done, failing=self._tally.failing)


def _log(text: str) -> None:
    """Print lines of at most `COLUMNS` columns; a path or a name that is longer stays whole, to be copied."""
    print("\n".join(wrapped(text, COLUMNS)), file=sys.stderr, flush=True)


def _run_file(path: Path) -> str:
    return f"results file: {path}"


def watcher() -> ProgressListener:
    """Return the listener for this stderr."""
    console = Console(stderr=True)
    return Bar(console) if console.is_terminal else Lines()

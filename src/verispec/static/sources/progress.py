"""Progress on the terminal's error stream; nothing without a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from verispec.static.pipeline import Progress as Report


@contextmanager
def shown_progress() -> Iterator[Report | None]:
    """Yield a progress callback that draws one line and wipes it at the end; None if stderr is not a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    # Drawn by the reporting call, not by a thread: the readers fork, and a process with threads must not.
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("", total=None)

        def report(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total or None, refresh=True)

        yield report

"""The driver of a fleet: hands out tasks, hears results, and keeps the folder that all of it is in.

The folder holds one results file per cell and ``fleet.json``: the plan, and the state of each cell. Results are written
here alone, one line each, so that a kill of any process loses at most what was being said.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from verispec import exits
from verispec.errors import VerispecError
from verispec.fleet.cell import CellRun, CellState
from verispec.fleet.messages import Message
from verispec.fleet.plan import FleetPlan
from verispec.fleet.tasks import Executor, Lost, Task
from verispec.run import runfile
from verispec.run.events import Collected
from verispec.run.progress import Silent
from verispec.run.session import Brakes, command_line, interruptible
from verispec.whole_file import write_whole

STATE = "fleet.json"
"""The plan and the state of each cell, in the folder of the fleet."""
FORMAT = "verispec/fleet/1"
LOOK = 0.2
"""Seconds to wait for messages."""
WRITE_EVERY = 2.0
"""Seconds between two writes of the state."""


class Watcher(Protocol):
    """Shows the state of the cells."""

    def look(self, cells: Sequence[CellRun]) -> None:
        """Look at the cells; called a few times per second."""

    def close(self) -> None:
        """Stop showing."""


class Folder:
    """The folder of a fleet, locked while this object is open.

    Raises:
        VerispecError: V-FLEET-BUSY, another driver has it; V-FLEET-FOLDER, it cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = (path / ".lock").open("w")
        except OSError as error:
            raise VerispecError(
                "V-FLEET-FOLDER",
                "the folder cannot be used",
                where=str(path),
                cause=error.strerror or str(error),
                hint="name a folder that you may write to: --out FOLDER",
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.close()
            raise VerispecError(
                "V-FLEET-BUSY",
                "another process drives this fleet",
                where=str(path),
                hint="see its state with: verispec fleet --status FOLDER",
                exit_code=exits.CANNOT_TELL,
            ) from error

    def begin(self, plan: FleetPlan) -> None:
        """Write the plan of a new fleet. Raises VerispecError V-FLEET-FOLDER if the folder holds another one."""
        if (self.path / STATE).exists() or any(self.path.glob("*.jsonl")):
            raise VerispecError(
                "V-FLEET-FOLDER",
                "the folder holds a fleet",
                where=str(self.path),
                hint=f"complete it with: verispec fleet --resume {self.path}; or name another folder",
            )
        self.write(plan, ())

    def write(self, plan: FleetPlan, cells: Sequence[CellRun], *, over: bool = False) -> None:
        """Write the plan and the state of each cell."""
        state = {
            "format": FORMAT,
            "plan": plan.to_json(),
            "over": over,
            "updated": runfile.now(),
            "cells": [cell_state(cell) for cell in cells],
        }
        write_whole(self.path / STATE, json.dumps(state, indent=1) + "\n", what="the state of the fleet", durable=over)

    def file_of(self, name: str) -> Path:
        """Return the results file of a cell."""
        return self.path / f"{name}.jsonl"

    def close(self) -> None:
        """Release the folder."""
        self._lock.close()


def read_state(path: Path) -> dict[str, Any]:
    """Return the content of ``fleet.json`` in the folder `path`.

    Raises:
        VerispecError: V-FLEET-FOLDER, there is none.
    """
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise VerispecError(
            "V-FLEET-FOLDER",
            "the folder holds no fleet",
            where=str(path),
            cause=str(error),
            hint="verispec fleet prints the folder that it writes",
        ) from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise VerispecError(
            "V-FLEET-FOLDER",
            f"{STATE} has another format than {FORMAT}",
            where=str(path),
            hint="read it with the verispec that wrote it, or run the fleet again",
        )
    return state


def cell_state(cell: CellRun) -> dict[str, Any]:
    """Return the state of a cell as JSON values."""
    return {
        "cell": cell.plan.name,
        "engine": cell.plan.plan.engine,
        "platform": cell.plan.platform,
        "state": str(cell.state),
        "total": cell.total,
        "done": cell.done,
        "failing": cell.failing,
        "pieces": len(cell.running),
        "reason": cell.reason,
        "file": cell.path.name,
    }


def drive(plan: FleetPlan, folder: Folder, executor: Executor, watcher: Watcher, brakes: Brakes) -> list[CellRun]:
    """Run the remaining cases of `plan` and return its cells. Results are in their files and in memory.

    An interrupt (Ctrl-C, SIGTERM) ends each cell with a footer that says so.

    Raises:
        VerispecError: V-FLEET-RESOURCES, a cell needs what the executor never has; and those of `runfile.Writer`.
    """
    _allow_files()
    command = command_line()
    cells = [CellRun(cell, folder.file_of(cell.name), brakes, command, Silent()) for cell in plan.cells]
    _require_resources(cells, executor)
    driver = _Driver(plan, cells, executor)
    try:
        with interruptible(), contextlib.closing(executor):
            for _ in driver.turns(brakes.max_time):
                watcher.look(cells)
                if driver.changed(WRITE_EVERY):
                    folder.write(plan, cells)
    except KeyboardInterrupt:
        driver.stop_all("interrupted")
    finally:
        watcher.close()
        for cell in cells:
            cell.release()
    folder.write(plan, cells, over=True)
    return cells


class _Driver:
    def __init__(self, plan: FleetPlan, cells: Sequence[CellRun], executor: Executor) -> None:
        self._plan, self._cells, self._executor = plan, cells, executor
        self._cell_of = {cell.plan.name: cell for cell in cells}
        self._written = 0.0

    def turns(self, max_time: float | None) -> Iterator[None]:
        """Hand out tasks and hear messages until every cell is over; pass after each turn."""
        deadline = None if max_time is None else time.monotonic() + max_time
        while not all(cell.state.over for cell in self._cells):
            self._hand_out()
            for task, message in self._executor.messages(LOOK):
                self._hear(task, message)
            if deadline is not None and time.monotonic() > deadline:
                self.stop_all("stopped after the time of --max-time")
            yield

    def changed(self, seconds: float) -> bool:
        """Return whether `seconds` have passed since this was last true."""
        now = time.monotonic()
        if now - self._written < seconds:
            return False
        self._written = now
        return True

    def stop_all(self, reason: str) -> None:
        """End every cell."""
        for cell in self._cells:
            if not cell.state.over:
                cell.stop(reason)
                self._end_tasks(cell)

    def _hand_out(self) -> None:
        """Start tasks while there is room: each time in the cell with the most left to do, so that all end together."""
        self._collect()
        waiting = [cell for cell in self._cells if cell.state in (CellState.RUNNING, CellState.CLOSING)]
        left = sum(cell.seconds_left for cell in waiting) or 1.0
        for cell in sorted(waiting, key=lambda cell: -cell.seconds_left):
            resources = cell.plan.resources
            while self._executor.fits(resources):
                share = cell.seconds_left / left
                task = cell.next_task(self._executor.slots(resources), self._plan.piece, share)
                if task is None:
                    break
                self._executor.start(task)

    def _collect(self) -> None:
        """Collect the cases of cells that wait, once for all that have the same.

        A second cell with an environment that is being made would only wait for it, in a place that others can use.
        """
        collecting = {cell.collection for cell in self._cells if cell.state is CellState.COLLECTING}
        making = {cell.plan.environment for cell in self._cells if cell.state is CellState.COLLECTING}
        for cell in self._cells:
            if cell.state is not CellState.WAITING or cell.collection in collecting:
                continue
            if cell.plan.environment and cell.plan.environment in making:
                continue
            task = cell.collect()
            if not self._executor.fits(task.resources):
                cell.running.remove(task)
                cell.state = CellState.WAITING
                return
            collecting.add(cell.collection)
            making.add(cell.plan.environment)
            self._executor.start(task)

    def _hear(self, task: Task, message: Message | Lost) -> None:
        cell = self._cell_of[task.cell.name]
        if isinstance(message, Collected):
            for other in self._cells:
                if other.collection == cell.collection and other.state in (CellState.WAITING, CellState.COLLECTING):
                    with _failing(other):
                        other.collected(message.selected)
            return
        cell.hear(task, message)
        if cell.state.over:
            self._end_tasks(cell)

    def _end_tasks(self, cell: CellRun) -> None:
        for task in cell.running:
            self._executor.stop(task)
        cell.running.clear()


@contextlib.contextmanager
def _failing(cell: CellRun) -> Iterator[None]:
    """Have an error of one cell end that cell alone."""
    try:
        yield
    except VerispecError as error:
        cell.fail(error)


def _require_resources(cells: Sequence[CellRun], executor: Executor) -> None:
    for cell in cells:
        if not cell.state.over and (refusal := executor.refusal(cell.plan.resources)):
            raise VerispecError(
                "V-FLEET-RESOURCES",
                f"the cell {cell.plan.name!r} can never run: {refusal}",
                where="[[platform]]",
                hint="change cores, memory, gpus or resources of its platform, or run on other machines",
            )


def _allow_files() -> None:
    """Raise the limit of open files as far as the system lets us: each cell in progress has one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def new_folder(name: str) -> Path:
    """Return a folder in the user's cache for a fleet without a named folder."""
    from datetime import UTC, datetime

    from verispec.cache_folder import cache_dir

    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    return cache_dir() / "fleets" / f"{name}-{stamp}-{os.getpid()}"

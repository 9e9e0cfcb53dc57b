"""The process that collects the suites once and forks a worker from itself whenever the supervisor asks.

Importing torch and collecting the suites takes seconds; a fork takes milliseconds. A crash of the engine
therefore costs little more than starting the engine again. The server itself never starts an engine and
never runs a kernel: a fork is safe while the process has one thread and no device.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from verispec.run.case_queue import CaseQueue
from verispec.run.events import CasesTaken, EventWriter, SuiteFailed, WorkerEnded, WorkerStarted
from verispec.run.process_tree import adopt_orphans, die_with_parent, kill_descendants, outlive_parent

LOOK_EVERY = 0.02
"""Seconds between two looks for workers that ended."""


class ForkServer:
    """Serves the supervisor at the other end of stdin; `scratch` is the folder that both share."""

    def __init__(self, scratch: Path, processes: int) -> None:
        self._scratch = scratch
        self._processes = processes
        self._workers: set[int] = set()
        self.events = EventWriter(event_log(scratch))
        die_with_parent()  # while suites are collected, nobody listens at stdin

    def serve(self, work: Callable[[EventWriter, Iterator[str]], None]) -> None:
        """Fork a worker for every line on stdin until stdin is closed; then end everything below this process.

        Args:
            work: what a worker does with its event writer and its cases, which come from the shared queue.
        """
        outlive_parent()
        adopt_orphans()
        listening = True
        while listening:
            if select.select([0], [], [], LOOK_EVERY)[0]:
                asked = os.read(0, 4096)
                listening = bool(asked)
                for _ in range(asked.count(b"\n")):
                    self._fork(work)
            self._collect_ended()
        kill_descendants(os.getpid())

    def _fork(self, work: Callable[[EventWriter, Iterator[str]], None]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            self._workers.add(pid)
            return
        status = 1
        try:
            events = _become_worker(self._scratch, self.events)
            events.write(WorkerStarted(os.getpid()))
            try:
                work(events, self._take(events))
                status = 0
            except BaseException as error:  # a fault of the harness or of a suite: engines are guarded further in
                events.write(SuiteFailed("the worker", f"{type(error).__name__}: {error}"))
                traceback.print_exc()
            with contextlib.suppress(OSError, ValueError):  # an engine may have closed them
                sys.stdout.flush()
                sys.stderr.flush()
        finally:
            os._exit(status)

    def _take(self, events: EventWriter) -> Iterator[str]:
        queue = CaseQueue(case_queue(self._scratch))
        while block := queue.take(self._processes):
            events.write(CasesTaken(os.getpid(), block))
            yield from block

    def _collect_ended(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid in self._workers:
                self._workers.discard(pid)
                kill_descendants(os.getpid(), without=self._workers)  # what the worker's engine left behind
                self.events.write(WorkerEnded(pid, os.waitstatus_to_exitcode(status)))


def event_log(scratch: Path) -> Path:
    """Return the path of the event log."""
    return scratch / "events.jsonl"


def case_queue(scratch: Path) -> Path:
    """Return the path of the queue of cases."""
    return scratch / "queue"


def worker_log(scratch: Path, pid: int) -> Path:
    """Return the path of what the worker `pid` printed."""
    return scratch / f"{pid}.log"


def _become_worker(scratch: Path, events: EventWriter) -> EventWriter:
    """Separate this process from the server: own log, own event writer, nothing on stdin."""
    die_with_parent()
    adopt_orphans()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    log = os.open(worker_log(scratch, os.getpid()), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    faulthandler.enable(file=2, all_threads=False)
    return events.in_this_process()

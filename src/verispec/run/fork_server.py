"""The process that imports the engine and the suites once and forks a worker whenever the supervisor asks.

Importing torch, the suites and the engine's modules takes seconds; a fork takes milliseconds. A crash of the
engine therefore costs little more than starting the engine again.

    server              forks the template, waits for it
      template          imports the engine's modules, collects the suites, forks the workers
        worker          starts the engine and runs cases

No fork is safe in a process that has threads or a device, so neither of the two starts an engine or runs a
kernel. The engine's modules may crash, hang or start threads as they are imported. The server then ends the template,
collects the suites and forks the workers itself. Each of them imports the modules, and the supervisor sees how that
fails.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from verispec.errors import VerispecError
from verispec.run.case_queue import CaseQueue
from verispec.run.events import CasesTaken, EngineRefused, EventWriter, SuiteFailed, WorkerEnded, WorkerStarted
from verispec.run.process_tree import adopt_orphans, die_with_parent, kill_descendants, resume_when_parent_ends

LOOK_EVERY = 0.02
"""Seconds between two looks for workers that ended."""


class ForkServer:
    """Serves the supervisor at the other end of stdin; `scratch` is the folder that both share."""

    def __init__(self, scratch: Path, processes: int) -> None:
        self._scratch = scratch
        self._processes = processes
        self._workers: set[int] = set()
        self.events = EventWriter(event_log(scratch))
        die_with_parent()  # while suites are collected, stdin is not read
        if _is_closed(0):  # the supervisor ended before this process could ask to end with it
            os._exit(1)

    def fork_template(self, import_engine: Callable[[], object], import_timeout: float) -> None:
        """Return in a child that has imported the engine's modules; in this process if there cannot be one.

        An engine that cannot be imported for a reason that is an error of verispec's is reported here.

        Args:
            import_engine: imports the modules that starting the engine needs.
            import_timeout: seconds that it may take.
        """
        resume_when_parent_ends()  # a supervisor that ends us stops us first, and may be killed before it goes on
        adopt_orphans()
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            self._become_template(import_engine)
            os.write(writer, b"1")
            os.close(writer)
            return
        os.close(writer)
        ready = select.select([reader], [], [], import_timeout)[0] and os.read(reader, 1)
        os.close(reader)
        if not ready:
            kill_descendants(os.getpid())
            os.waitpid(pid, 0)
            return
        _, status = os.waitpid(pid, 0)
        kill_descendants(os.getpid())
        end_like(status)

    def _become_template(self, import_engine: Callable[[], object]) -> None:
        """Import the engine's modules; end this process if that fails or starts threads."""
        die_with_parent()
        adopt_orphans()
        self.events = self.events.in_this_process()
        try:
            import_engine()
        except VerispecError as error:
            self.events.write(EngineRefused(os.getpid(), error.diagnostic.to_json(), error.exit_code))
            os._exit(1)
        except BaseException:  # what fails here fails in the worker, which reports it
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        if not _has_one_thread():
            os._exit(1)

    def serve(self, work: Callable[[EventWriter, Iterator[str]], None]) -> None:
        """Fork a worker for every line on stdin until stdin is closed; then end everything below this process.

        Args:
            work: function of a worker, with its event writer and its cases, which come from the shared queue.
        """
        gc.freeze()  # a collection in a worker need not look at the million objects of torch and the suites
        gc.enable()
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


def _has_one_thread() -> bool:
    """Return True if this process has one thread and can be forked; threads of libraries count too."""
    tasks = Path("/proc/self/task")
    return (len(list(tasks.iterdir())) if tasks.exists() else threading.active_count()) == 1


def _is_closed(pipe: int) -> bool:
    """Return True if nothing can write to a pipe any more; nothing is read from it."""
    poll = select.poll()
    poll.register(pipe, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def event_log(scratch: Path) -> Path:
    """Return the path of the event log."""
    return scratch / "events.jsonl"


def case_queue(scratch: Path) -> Path:
    """Return the path of the queue of cases."""
    return scratch / "queue"


def worker_log(scratch: Path, pid: int) -> Path:
    """Return the path of the log of the worker `pid`."""
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


def end_like(status: int) -> NoReturn:
    """End this process as a child ended, by the same signal or exit code, so that the supervisor says it rightly."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):  # their handlers cannot be set
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code % 256)

"""The supervisor: has the suites run in worker processes and gives every case a result, whatever the engine does.

An engine under test may crash, hang or end its process. Each of these costs the one case that was running:
the supervisor knows the case from the event log, records the result, and has a new worker forked for the rest.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from verispec import exits
from verispec.engines.registry import require_known, require_place
from verispec.errors import VerispecError, portable
from verispec.run.case_queue import CaseQueue
from verispec.run.events import (
    CANNOT_WRITE,
    LOG_CLOSED,
    CaseEnded,
    CaseShrinks,
    CasesTaken,
    CaseStarted,
    CloseFailed,
    Collected,
    EngineClosing,
    EngineRefused,
    EngineStarted,
    EventReader,
    Rechecked,
    RunEvent,
    Stopped,
    SuiteFailed,
    Waiting,
    Warned,
    WorkerEnded,
    WorkerEvent,
    WorkerStarted,
)
from verispec.run.fork_server import case_queue, event_log, worker_log
from verispec.run.logs import bound_log, crash_of, last_lines
from verispec.run.plan import SHRINK_TIMEOUT, Plan, require_agreement, start_server
from verispec.run.process_tree import ended_for_memory, kill_descendants, send_signal, waited_for_processor
from verispec.run.record import SAVED, UNDECIDED
from verispec.run.requirements import require_packages
from verispec.saved_calls.record_folder import keep_launch, sweep, tidy

LOOK_EVERY = 0.02
"""Seconds between two looks at the event log: short beside a case, and no load."""
UNWATCHED = 0.25
"""Seconds of a phase before waiting for a processor is measured: looking earlier would cost every short case."""
GRACE = 2.0
"""Seconds from asking a hung process for its traceback to killing it."""
REPORT_EVERY = 10.0
"""Seconds between two `Waiting` events."""
COLLECT_TIMEOUT = 600.0
"""Seconds for importing the suites and collecting their cases, beside those for importing the engine."""
FRUITLESS = 2
"""Workers in a row that may end without a result before the run gives up."""
NO_MEMORY = "the system ended the process, as memory ran out"


class Phase(StrEnum):
    """The phase of a worker's life."""

    START = "starting the engine"
    BETWEEN = "between two cases"
    CASE = "running a case"
    SHRINK = "making the failing call small"
    CLOSE = "closing the engine"


@dataclass(slots=True)
class _Worker:
    since: float
    phase: Phase = Phase.START
    taken: list[str] = field(default_factory=list)
    record: dict[str, Any] = field(default_factory=dict)
    log_from: int = 0
    fruitful: bool = False
    asked: float = 0.0
    """Time of the request for a hung process's traceback; 0 before it."""
    waited: float | None = None
    """`waited_for_processor` at the first look after `UNWATCHED` seconds of the phase."""

    def enter(self, phase: Phase) -> None:
        self.phase, self.since, self.waited = phase, time.monotonic(), None


class Supervisor:
    """One run of a plan. Iterating runs it; leaving the iteration early ends every process of the run.

    Args:
        plan: plan of the run.
        judged: ids of cases that already have a result.
        recheck: True runs one rejected case of each kind again at the end, in a fresh process (`Rechecked`).
        deadline: `time.monotonic()` at which the run stops.

    Raises:
        VerispecError: V-ENG-START, or the error of the adapter, if the engine cannot be started; V-ENG-CHANGED if a
            later process has another one;
            V-RUN-CHILD when the suites or the harness fail; V-RUN-WRITE when events cannot be written.
    """

    def __init__(
        self, plan: Plan, judged: Iterable[str] = (), *, recheck: bool = False, deadline: float | None = None
    ) -> None:
        require_agreement(plan)
        require_packages(generation=plan.generates)
        self._plan = plan
        self._judged = frozenset(judged)
        self._recheck = recheck
        self._deadline = deadline
        self._workers: dict[int, _Worker] = {}
        self._waiting: dict[str, None] = {}
        """Cases without a result, in order."""
        self._forks: list[float] = []
        """Time of the request for each worker that has not reported yet."""
        self._fruitless = 0
        self._described: dict[str, Any] = {}
        """The engine of the first worker."""
        self._rechecking = self._decided = False
        self._rejected: dict[tuple[str, str], str] = {}
        self._ended_for_memory = ended_for_memory()
        self._killed: set[str] = set()
        """Cases that a SIGKILL of unknown origin has ended once."""

    def collect(self) -> Collected:
        """Return the cases of the plan, without starting the engine."""
        with self._server(collect_only=True):
            for event in self._collect():
                if isinstance(event, Collected):
                    return event
        raise AssertionError("a child that collects says so or fails")

    def __iter__(self) -> Iterator[RunEvent]:
        require_known(self._plan.engine)
        require_place(self._plan.engine)
        with self._server():
            for event in self._collect():
                yield event
                if isinstance(event, Collected):
                    self._waiting = dict.fromkeys(case for case in event.selected if case not in self._judged)
            yield from self._run(self._plan.processes)
            if self._recheck and self._decided and self._rejected:
                self._rechecking = True
                self._waiting = dict.fromkeys(self._rejected.values())
                yield from self._run(1)

    @contextlib.contextmanager
    def trials(self) -> Iterator[Callable[[], dict[str, Any]]]:
        """Yield a function that runs the plan's one case in a new worker, each time, and returns its record."""
        require_known(self._plan.engine)
        require_place(self._plan.engine)

        def judge() -> dict[str, Any]:
            self._waiting = dict.fromkeys(selected)
            return next(event.record for event in list(self._run(1)) if isinstance(event, CaseEnded))

        with self._server():
            selected = next(e.selected for e in self._collect() if isinstance(e, Collected))
            yield judge

    @contextlib.contextmanager
    def _server(self, *, collect_only: bool = False) -> Iterator[None]:
        if self._plan.record:
            sweep(self._plan.record)
        with tempfile.TemporaryDirectory(prefix="verispec-") as name:
            self._scratch = Path(name)
            self._queue = CaseQueue(case_queue(self._scratch))
            self._events = EventReader(event_log(self._scratch))
            with (self._scratch / "server.log").open("wb") as log:
                self._child = start_server(self._plan, self._scratch, log, collect_only=collect_only)
            try:
                yield
            finally:
                _end(self._child)
                if self._plan.record:
                    for pid in self._workers:
                        tidy(self._plan.record, pid)
                    sweep(self._plan.record)
                self._events.close()
                self._workers.clear()
                self._forks.clear()

    def _collect(self) -> Iterator[RunEvent]:
        """Wait until the engine's modules are imported and the suites collected."""
        began = time.monotonic()
        for passed in self._looks("importing the engine and the suites"):
            if passed:
                yield passed
            for event in self._events.new():
                yield from self._hear(event)
                if isinstance(event, Collected):
                    return
            if self._child.poll() is not None and not self._unread():
                raise self._server_ended()
            limit = self._plan.start_timeout + COLLECT_TIMEOUT
            if time.monotonic() - began > limit:
                message = f"the suites were not collected within {limit:g} s"
                raise _broken(message, last_lines(self._scratch / "server.log"))

    def _run(self, processes: int) -> Iterator[RunEvent]:
        """Have workers run the waiting cases; one starts the engine even when no case is left."""
        self._queue.put(self._waiting)
        for _ in range(min(processes, max(len(self._waiting), 1))):
            self._fork()
        for passed in self._looks():
            if passed:
                yield passed
            ended = self._child.poll() is not None  # before the events: the last ones are then all in the log
            for event in self._events.new():
                yield from self._hear(event)
            if not self._workers and not self._forks:
                return
            if ended:
                raise self._server_ended()
            if self._deadline is not None and time.monotonic() > self._deadline:
                yield Stopped("stopped after the time of --max-time")
                self._recheck = False
                return
            self._end_hung()
            for pid in self._workers:
                bound_log(worker_log(self._scratch, pid))

    def _looks(self, waiting_for: str = "") -> Iterator[Waiting | None]:
        """Pass once for each look at the log; name slow work now and then."""
        began = told = time.monotonic()
        while True:
            now = time.monotonic()
            slow = [(w.since, str(w.phase)) for w in self._workers.values() if w.phase in _SLOW]
            slow += [(forked, str(Phase.START)) for forked in self._forks]
            since, phase = min(slow, default=(began, waiting_for))
            if phase and now - max(since, told) > REPORT_EVERY:
                told = now
                yield Waiting(f"{phase}, {now - since:.0f} s")
            else:
                yield None
            time.sleep(LOOK_EVERY)

    def _fork(self) -> None:
        assert self._child.stdin is not None
        self._forks.append(time.monotonic())
        with contextlib.suppress(BrokenPipeError):  # a server that ended is noticed at the next look
            self._child.stdin.write(b"\n")
            self._child.stdin.flush()

    def _hear(self, event: WorkerEvent) -> Iterator[RunEvent]:
        match event:
            case Collected():
                yield event
            case SuiteFailed(where, text):
                raise _broken(f"{where} failed", text)
            case WorkerStarted(pid):
                self._forks.pop()
                self._workers[pid] = _Worker(time.monotonic())
            case EngineStarted(pid, engine):
                self._workers[pid].enter(Phase.BETWEEN)
                self._require_same_engine(engine)
                if not self._described:
                    self._described = engine
                    yield event
            case EngineRefused(_, diagnostic, exit_code):
                meant = exit_code if self._names_nothing(diagnostic) else exits.CANNOT_TELL
                raise VerispecError(**{"hint": "", **diagnostic}, exit_code=meant)
            case CasesTaken(pid, cases):
                self._workers[pid].taken += cases
            case CaseStarted(pid, log, record):
                worker = self._workers[pid]
                worker.enter(Phase.CASE)
                worker.record, worker.log_from = record, log
            case CaseShrinks(pid):
                self._workers[pid].enter(Phase.SHRINK)
            case CaseEnded(pid, record):
                self._workers[pid].enter(Phase.BETWEEN)
                self._workers[pid].fruitful = True
                yield self._result(record)
            case EngineClosing(pid):
                self._workers[pid].enter(Phase.CLOSE)
            case CloseFailed(_, text):
                yield Warned(f"close() of the engine raised {text}")
            case WorkerEnded(pid, status):
                yield from self._ended(pid, status)

    def _require_same_engine(self, engine: dict[str, Any]) -> None:
        """Require that all workers test one engine: the header of the results names the first worker's alone.

        Raises:
            VerispecError: V-ENG-CHANGED, with the fields that differ in a later process.
        """
        first = self._described
        changed = [name for name in IDENTITY if first and first[name] != engine[name]]
        if changed:
            others = ", ".join(f"{name} was {first[name]!r}, is {engine[name]!r}" for name in changed)
            raise VerispecError(
                "V-ENG-CHANGED",
                f"the engine {self._plan.engine!r} describes itself otherwise in a later process: {others}",
                where="describe()",
                hint="describe() must return the same in every process; do not install another version during a run",
                exit_code=exits.CANNOT_TELL,
            )

    def _names_nothing(self, diagnostic: dict[str, str]) -> bool:
        """Return True if no engine or device has the given name, so that the same command can never work."""
        package = self._plan.engine.partition(":")[0].partition(".")[0]
        absent = f"ModuleNotFoundError: No module named {package!r}"
        module = diagnostic["code"] == "V-ENG-MODULE" and diagnostic["cause"].startswith(absent)
        device = diagnostic["code"] == "V-ENG-DEVICE" and diagnostic["message"].startswith("unknown device")
        return module or device or diagnostic["code"] in ("V-ENG-UNKNOWN", "V-ENG-ATTR")

    def _result(self, record: dict[str, Any]) -> CaseEnded | Rechecked:
        self._waiting.pop(record["id"], None)
        if self._rechecking:
            return Rechecked(record)
        if record["outcome"] == "unsupported":
            self._rejected.setdefault((record["id"].partition(":")[0], record["reason"]), record["id"])
        self._decided |= record["outcome"] not in UNDECIDED
        return CaseEnded(0, record)

    def _ended(self, pid: int, status: int) -> Iterator[RunEvent]:
        """Record the meaning of a worker's end, and replace it where cases are left for it."""
        if pid not in self._workers:  # it ended before it could report
            self._forks.pop()
            self._workers[pid] = _Worker(time.monotonic())
        worker = self._workers.pop(pid)
        if self._plan.record and worker.phase not in (Phase.CASE, Phase.SHRINK):
            tidy(self._plan.record, pid)
        if status == CANNOT_WRITE:
            raise self._cannot_write(last_lines(worker_log(self._scratch, pid)))
        how = f"no answer within {self._limit(worker.phase):g} s" if worker.asked else _ending(status)
        is_memory = status == -signal.SIGKILL and not worker.asked and self._memory_ran_out()
        if is_memory:
            how = NO_MEMORY
        match worker.phase:
            case Phase.START:
                raise self._cannot_start(how, pid)
            case Phase.CASE if status == -signal.SIGKILL and not (worker.asked or is_memory) and self._first(worker):
                worker.fruitful = True
                yield Warned(f"{worker.record['id']}: {how}, perhaps from outside of the run; it runs once more")
            case Phase.CASE | Phase.SHRINK:
                worker.fruitful = True
                yield self._undecided(worker, pid) if is_memory else self._crash(worker, pid, how)
            case Phase.CLOSE if worker.asked or status:
                yield Warned(f"close() of the engine: {how}")
            case Phase.BETWEEN if (worker.asked or status) and status != exits.CANNOT_TELL:
                yield Warned(f"outside of any case, {how}")
        left = [case for case in worker.taken if case in self._waiting]
        self._fruitless = 0 if worker.fruitful or not left else self._fruitless + 1
        if self._fruitless >= FRUITLESS:
            raise _broken("workers end without a result", last_lines(worker_log(self._scratch, pid)))
        self._queue.put(left)
        if set(self._waiting).difference(*(other.taken for other in self._workers.values())) and not self._forks:
            self._fork()

    def _memory_ran_out(self) -> bool:
        """Return True if the system has ended a process for its memory since the last such end of a worker."""
        before, self._ended_for_memory = self._ended_for_memory, ended_for_memory()
        return self._ended_for_memory > before

    def _first(self, worker: _Worker) -> bool:
        """Return True if the worker's case has not been killed before: anybody can kill a process, but hardly twice."""
        case = worker.record["id"]
        is_first = case not in self._killed
        self._killed.add(case)
        return is_first

    def _undecided(self, worker: _Worker, pid: int) -> CaseEnded | Rechecked:
        """Leave a case undecided that needs more memory than the machine has: no fault of the engine is seen."""
        if self._plan.record:
            tidy(self._plan.record, pid)
        reason = f"{NO_MEMORY}; run this case where more is free"
        seconds = round(time.monotonic() - worker.since, 6)
        return self._result({**worker.record, "outcome": "inconclusive", "seconds": seconds, "reason": reason})

    def _crash(self, worker: _Worker, pid: int, how: str) -> CaseEnded | Rechecked:
        path, begin = worker_log(self._scratch, pid), worker.log_from
        outcome, message = crash_of(how, path, begin, hung=bool(worker.asked))
        details = {"log": portable(last_lines(path, begin))}
        if self._plan.record and (saved := keep_launch(self._plan.record, pid, worker.record["id"])):
            details[SAVED] = str(saved)
        failure = {"kind": outcome, "message": message, "details": details}
        seconds = round(time.monotonic() - worker.since, 6)
        return self._result({**worker.record, "outcome": outcome, "seconds": seconds, "failure": failure})

    def _limit(self, phase: Phase) -> float:
        limits = {
            Phase.START: self._plan.start_timeout,
            Phase.CLOSE: self._plan.close_timeout,
            Phase.SHRINK: SHRINK_TIMEOUT,
        }
        return limits.get(phase, self._plan.timeout)

    def _end_hung(self) -> None:
        """Ask a process that takes too long for its traceback, then kill it.

        On a busy machine an engine is slow without fault. Time that a process waited for a processor is
        therefore added to its limit.
        """
        now = time.monotonic()
        for pid, worker in self._workers.items():
            limit = self._limit(worker.phase)
            passed = now - worker.since
            if worker.asked:
                if now - worker.asked > GRACE:
                    send_signal(pid, signal.SIGKILL)
            elif worker.waited is None:
                if passed > min(limit / 2, UNWATCHED):
                    worker.waited = waited_for_processor(pid)
            elif passed > limit and passed - (waited_for_processor(pid) - worker.waited) > limit:
                worker.asked = now
                send_signal(pid, signal.SIGABRT)
        if self._forks and now - self._forks[0] > COLLECT_TIMEOUT:
            raise _broken("no worker could be forked", last_lines(self._scratch / "server.log"))

    def _unread(self) -> bool:
        return event_log(self._scratch).stat().st_size > self._events.position

    def _server_ended(self) -> VerispecError:
        log = last_lines(self._scratch / "server.log")
        if self._child.returncode == CANNOT_WRITE:
            return self._cannot_write(log)
        if self._child.returncode == -signal.SIGKILL:
            hint = "something outside of the run ended it, such as a shortage of memory; go on with --resume"
            return _broken(_ending(self._child.returncode), "", hint)
        return _broken(_ending(self._child.returncode), log)

    def _cannot_start(self, cause: str, pid: int) -> VerispecError:
        return VerispecError(
            "V-ENG-START",
            f"the engine {self._plan.engine!r} cannot be started",
            where="--engine",
            cause=f"{cause}\n{last_lines(worker_log(self._scratch, pid))}".rstrip(),
            hint="start it in Python alone to see more; --start-timeout sets the limit",
            exit_code=exits.CANNOT_TELL,
        )

    def _cannot_write(self, cause: str) -> VerispecError:
        last = cause.rpartition("\n")[2]
        if self._plan.record and last.startswith(f"verispec: {self._plan.record}: "):
            return VerispecError(
                "V-RUN-RECORD",
                "the inputs of a launch cannot be written",
                where=f"--record {self._plan.record}",
                cause=last.removeprefix(f"verispec: {self._plan.record}: "),
                hint="free space there, then go on with --resume",
                exit_code=exits.CANNOT_TELL,
            )
        return VerispecError(
            "V-RUN-WRITE",
            "events of the run cannot be written",
            where=str(self._scratch.parent),
            cause=last,
            hint="free space there, or set TMPDIR to a folder with space",
            exit_code=exits.CANNOT_TELL,
        )


IDENTITY = ("name", "version", "platform", "device")
"""Fields of a description that are the same in all processes of a run; details may name a process or a device."""

_SLOW = (Phase.START, Phase.SHRINK, Phase.CLOSE)
"""Phases that may take long beside a case's own calls."""


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the server and everything below it, in whatever session."""
    if child.poll() is None:
        send_signal(child.pid, signal.SIGSTOP)  # it adopts orphans still, and forks no more
        try:
            kill_descendants(child.pid)
        finally:  # an interrupt may come in between, and no other code would end a stopped process
            send_signal(child.pid, signal.SIGKILL)
    child.wait()
    if child.stdin:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()


def _ending(status: int) -> str:
    if status < 0:
        known = -status in {int(number) for number in signal.Signals}
        name = signal.Signals(-status).name if known else f"signal {-status}"
        return f"the process was ended by {name} ({signal.strsignal(-status)})"
    if status == LOG_CLOSED:
        return "the engine closed files of the process that are not its own"
    return f"the process ended itself with exit code {status}"


_SUITES = "this is a fault of the suites or of their environment, not of the engine"


def _broken(message: str, cause: str, hint: str = _SUITES) -> VerispecError:
    return VerispecError(
        "V-RUN-CHILD",
        message,
        where="the suites",
        cause=cause,
        hint=hint,
        exit_code=exits.CANNOT_TELL,
    )

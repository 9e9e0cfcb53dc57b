"""A cell in progress: its results and file, its remaining cases, and its state."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from verispec import expectations
from verispec.cases import CaseId
from verispec.errors import VerispecError
from verispec.fleet.messages import Begun, Done, Explained, Message, Refused
from verispec.fleet.plan import CellPlan, Resources
from verispec.fleet.tasks import Lost, Task
from verispec.run import runfile
from verispec.run.attribution import may_explain
from verispec.run.coverage import parse_floor
from verispec.run.events import CaseEnded, Collected, Rechecked, Waiting, Warned
from verispec.run.progress import ProgressListener
from verispec.run.record import UNDECIDED, Record
from verispec.run.session import Brakes, Files, Options, Session

SMALLEST = 20
"""Cases below which a piece costs more to start than it takes from the end of the fleet."""
STRIKES = 2
"""Losses before the first case of a piece runs alone, and again before it counts as broken."""
GIVE_UP = 10
"""Processes in a row that may be killed before they give a result."""
_LAST = {
    "explain": "running failing cases again with the reference's kernels",
    "cases": "running a case of each kind again that the engine does not support",
}
"""Descriptions of the tasks after the last case, by kind."""


class CellState(StrEnum):
    """The state of a cell."""

    WAITING = "waiting"
    COLLECTING = "collecting"
    RUNNING = "running"
    CLOSING = "closing"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def over(self) -> bool:
        """Return whether nothing more happens in the cell."""
        return self in (CellState.DONE, CellState.STOPPED, CellState.FAILED)


class CellRun:
    """One cell of the matrix, from its first task to the footer of its results file.

    Args:
        plan: plan of the cell.
        path: path of its results file, which may hold results of an earlier attempt.
        brakes: conditions under which the cell stops early.
        command: the command line, for the header.
        listener: hears of results.
    """

    def __init__(
        self, plan: CellPlan, path: Path, brakes: Brakes, command: list[str], listener: ProgressListener
    ) -> None:
        self.plan, self.path = plan, path
        self.state = CellState.WAITING
        self.reason = ""
        self.run: runfile.Run | None = None
        self.running: list[Task] = []
        self._brakes, self._command, self._listener = brakes, command, listener
        self._session: Session | None = None
        self._left: deque[tuple[str, ...]] = deque()
        """Cases to hand out, in chunks that no piece exceeds."""
        self._closing: list[Task] | None = None
        """Tasks after the last case; None before they are known."""
        self._strikes: Counter[str] = Counter()
        self._unstarted: Counter[str] = Counter()
        """Losses before the engine had started, by the first case that was left."""
        self._handed_out: dict[Task, float] = {}
        """Running tasks with cases whose engine has not started, and since when."""
        self._start_seconds = math.inf
        """The shortest time from handing out a task to the start of its engine."""
        self._collected: Sequence[str] | None = None
        self._fruitless = 0
        self._began = 0.0
        self.failing = 0
        """Unexpected failures so far."""
        self._seconds = 0.0
        old = runfile.read(path) if path.exists() and path.stat().st_size else None
        if old and old.footer.get("complete"):
            self.state, self.run = CellState.DONE, old
            self._count(old.records)
        self._old = old

    @property
    def records(self) -> dict[str, Record]:
        """The results so far."""
        if self._session:
            return self._session.records
        kept = self.run or self._old
        return {record.id: record for record in kept.records} if kept else {}

    @property
    def done(self) -> int:
        """Number of results so far."""
        kept = self.run or self._old
        return len(self._session.records) if self._session else len(kept.records) if kept else 0

    @property
    def total(self) -> int:
        """Number of cases; 0 before they are collected."""
        if self._session:
            return self._session.total
        return len(self.run.records) + int(self.run.footer["left"]) if self.run else 0

    @property
    def collection(self) -> tuple[Any, ...]:
        """Return the fields that decide which cases the cell has: cells with the same are collected once."""
        plan = self.plan.plan
        return (self.plan.environment, str(self.plan.runtime_env), plan.suites, plan.only, plan.smoke)

    def collect(self) -> Task:
        """Return the task that collects the cases."""
        self.state = CellState.COLLECTING
        resources = Resources(memory=self.plan.resources.memory, custom=self.plan.resources.custom)
        return self._began_task(Task("collect", self.plan, resources))

    def collected(self, cases: Sequence[str]) -> None:
        """Take in the cell's cases, and open its file.

        Raises:
            VerispecError: V-RUN-BUSY and others of `runfile.Writer`.
        """
        self._collected = cases
        old = self._old
        known = expectations.load(Path(self.plan.expect)) if self.plan.expect else ()
        plain = map(runfile.without_expectations, old.records) if old else ()
        records = {record.id: expectations.apply(known, record) for record in plain}
        floor = parse_floor(self.plan.min_judged)
        options = Options(Files(self.path), known, self._brakes, floor, self._command)
        self._session = Session(
            self.plan.plan, options, runfile.Writer(self.path), records, old.header if old else None
        )
        self._session.hear(Collected(list(cases), []), self._listener)
        self._count(records.values())
        left = [case for case in cases if case not in records]
        self._left.extend(tuple(group) for _, group in itertools.groupby(left, lambda case: CaseId.parse(case).suite))
        self._began = time.monotonic()
        self.state, self.reason = CellState.RUNNING, ""
        if old and not left:
            self._session.open(dict(old.header))

    def next_task(self, slots: int, piece: int, share: float = 1.0) -> Task | None:
        """Return the next task; None while the cell waits for those that run, or has none left.

        Args:
            slots: number of tasks of the cell that can run at the same time.
            piece: maximum cases per task.
            share: the cell's part of the work that the fleet has left.
        """
        if self.plan.at_once and len(self.running) >= self.plan.at_once:
            return None
        if self.state is CellState.RUNNING and self._left:
            cases = self._take(min(self._size(4 * slots * share), piece))
            return self._began_task(Task("cases", self.plan, self.plan.resources, cases))
        if self.state is CellState.RUNNING and not self.running:
            self.state = CellState.CLOSING
            self._closing = list(self._last_tasks())
        if self.state is CellState.CLOSING and self._closing:
            task = self._closing.pop()
            self.reason = _LAST[task.kind]
            return self._began_task(task)
        if self.state is CellState.CLOSING and not self.running:
            self._finish(CellState.DONE)
        return None

    @property
    def waiting(self) -> int:
        """Number of cases that no task has."""
        return sum(map(len, self._left))

    @property
    def seconds_left(self) -> float:
        """Estimate the processor seconds of the waiting cases, by those that have a result."""
        return self.waiting * self._seconds_per_case * self.plan.resources.cores

    @property
    def _seconds_per_case(self) -> float:
        return max(self._seconds / self.done, 1e-3) if self.done else 1.0

    def _size(self, parts: float) -> int:
        """Return how many cases to hand out: one of `parts`, but enough to take as long as the engine's start."""
        worth = self._start_seconds / self._seconds_per_case if math.isfinite(self._start_seconds) else 0.0
        return max(math.ceil(self.waiting / max(parts, 1.0)), SMALLEST, math.ceil(worth))

    def hear(self, task: Task, message: Message | Lost) -> None:
        """Process a message of a task."""
        over = isinstance(message, (Done, Refused, Lost))
        if over:
            self.running.remove(task)
        try:
            self._take_in(task, message)
        except VerispecError as error:
            self.fail(error)
        if over:
            self._handed_out.pop(task, None)
        if self._session and self._session.reason and not self.state.over:
            self.stop(self._session.reason)

    def _take_in(self, task: Task, message: Message | Lost) -> None:
        session = self._session
        match message:
            case Begun(header):
                assert session is not None
                since = self._handed_out.pop(task, None)  # None if this is the engine's second start
                if since is not None:
                    self._start_seconds = min(self._start_seconds, time.monotonic() - since)
                self._open(session, header)
            case CaseEnded(_, record) if task.repeated:
                assert session is not None
                session.hear(Rechecked(record), self._listener)
            case CaseEnded() | Warned():
                assert session is not None
                session.hear(message, self._listener)
                self._fruitless = 0
                if isinstance(message, CaseEnded):
                    self._count([session.records[message.record["id"]]])
            case Explained(record):
                assert session is not None
                session.keep(Record.from_json(record))
            case Waiting(text):
                self.reason = text
            case Refused():
                raise message.error
            case Lost():
                self._lost(task, message)

    def _open(self, session: Session, found: dict[str, Any]) -> None:
        """Begin the file with the header of the first piece; later ones must have run the same."""
        self.reason = ""
        if session.header:
            runfile.require_same_run(session.header, found, self.path)
            return
        mine = runfile.make_header(
            self.plan.plan,
            {name: value for name, value in found["engine"].items() if name != "asked"},
            session.total,
            session.options.expectations,
            self._command,
            session.options.floor.text,
        )
        there = {name: found[name] for name in ("verispec", "platform")}
        session.open({**mine, **there, "cell": self.plan.name})

    def _lost(self, task: Task, lost: Lost) -> None:
        """Return the cases of a lost task to those that wait, or give the cell up."""
        if lost.by_itself:
            raise VerispecError(
                "V-FLEET-PIECE",
                "a piece failed",
                where=self.plan.name,
                cause=lost.how,
                hint="run the cell's engine alone: verispec run --engine NAME",
            )
        self._fruitless += lost.killed
        if self._fruitless >= GIVE_UP:
            raise VerispecError(
                "V-FLEET-KILLED",
                f"{GIVE_UP} processes in a row were killed before they gave a result",
                where=self.plan.name,
                cause=lost.how,
                hint="is there enough memory? [[platform]] memory says how much a piece needs",
            )
        if task.kind == "cases" and not task.repeated:
            self._again(task, lost.how)
            return
        self._strikes[task.kind] += 1
        # Nothing runs without the cases, and collecting them runs no engine that could be the reason.
        if self._strikes[task.kind] > (GIVE_UP if task.kind == "collect" else STRIKES):
            raise VerispecError(
                "V-FLEET-PIECE",
                f"the task {task.kind!r} was lost",
                cause=lost.how,
                hint="look at the machine that it ran on, then complete the fleet with --resume",
            )
        if task.kind == "collect":
            self.state = CellState.WAITING
        elif self._closing is not None:
            self._closing.append(task)

    def _again(self, task: Task, how: str) -> None:
        """Have the cases without a result run again; one that was lost too often gets the result `error`.

        Cases run in order. The first without a result was therefore running when the process ended, or none was.
        Before the engine has started, no case can be the reason.
        """
        left = tuple(case for case in task.cases if case not in self.records)
        if not left:
            return
        first, rest = left[0], left[1:]
        if task in self._handed_out:
            self._unstarted[first] += 1
            if self._unstarted[first] > GIVE_UP:
                raise VerispecError(
                    "V-FLEET-PIECE",
                    f"{GIVE_UP + 1} times in a row a piece was lost before its engine had started",
                    where=self.plan.name,
                    cause=how,
                    hint="is there enough memory? [[platform]] memory says how much a piece needs",
                )
            self._left.appendleft(left)
            return
        self._strikes[first] += 1
        if self._strikes[first] <= STRIKES:
            self._left.appendleft(left)
            return
        if rest:
            self._left.appendleft(rest)
        if self._strikes[first] <= 2 * STRIKES:
            self._left.appendleft((first,))
            return
        assert self._session is not None
        times = self._strikes[first]
        reason = f"what ran it was lost {times} times, at last with this case alone: {how}"
        self._session.hear(CaseEnded(0, Record(first, "error", reason=reason).to_json()), self._listener)

    def _last_tasks(self) -> Iterable[Task]:
        """Yield the tasks after the last case: attribution, and before it one rejected case of each kind again."""
        assert self._session is not None
        records = list(self.records.values())
        if may_explain(self.plan.plan, records):
            lines = tuple(record.to_json() for record in records)
            yield Task("explain", self.plan, self.plan.resources, records=lines)
        rejected = {(r.id.partition(":")[0], r.reason): r.id for r in reversed(records) if r.seen == "unsupported"}
        if rejected and any(record.seen not in UNDECIDED for record in records):
            yield Task("cases", self.plan, self.plan.resources, tuple(reversed(rejected.values())), repeated=True)

    def _count(self, records: Iterable[Record]) -> None:
        """Count results, which are too many to be looked at again in each turn."""
        for record in records:
            self._seconds += record.seconds
            self.failing += record.failed and record.outcome != "xfail"

    def _take(self, count: int) -> tuple[str, ...]:
        chunk = self._left.popleft()
        if chunk[count:]:
            self._left.appendleft(chunk[count:])
        return chunk[:count]

    def _began_task(self, task: Task) -> Task:
        self.running.append(task)
        if task.kind == "cases":
            self._handed_out[task] = time.monotonic()
        return task

    def fail(self, error: VerispecError) -> None:
        """End the cell: without any result as failed, else as a run that ended early."""
        if self._session and self._session.records and self._session.header:
            self._session.reason = f"ended early: {error.diagnostic.message}"
            self._session.warnings.append(str(error))
            self.stop(self._session.reason)
        else:
            self.release()
            self.state, self.reason = CellState.FAILED, str(error)

    def stop(self, reason: str) -> None:
        """End the cell before its last case."""
        if self._session and self._session.header:
            self._session.reason = reason
            self._finish(CellState.STOPPED)
        else:
            self.release()
            self.state = CellState.STOPPED
        self.reason = reason

    def release(self) -> None:
        """Release the results file as it is."""
        if self._session:
            self._session.writer.release()

    def _finish(self, state: CellState) -> None:
        assert self._session is not None
        self.run = self._session.finish(time.monotonic() - self._began)
        self.state, self.reason = state, ""

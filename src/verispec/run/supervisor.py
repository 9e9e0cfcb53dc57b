"""The supervisor: runs the suites in a child process, and gives every case a verdict whatever the engine does to it.

An engine under judgement may crash, hang or end its process. Each of these costs the one case that
was running: the supervisor knows it from the journal, writes its verdict, and goes on with the rest,
in a new child or (with pytest-xdist) in a new worker.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verispec import exits
from verispec.errors import VerispecError
from verispec.run.journal import Event, Tail
from verispec.run.plan import Plan, environment

LOOK_EVERY = 0.02
"""Seconds between two looks at the journal: short beside a case, and no load."""
GRACE = 2.0
"""Seconds from asking a hung process for its traceback to killing it."""
START_TIMEOUT = 600.0
"""Seconds an engine may take to start: it loads libraries and compiles, on a machine that does other things too."""
LOG_LINES = 12
"""Lines of a crashed process's output that its record keeps."""


@dataclass(frozen=True, slots=True)
class Collected:
    """The cases that will be judged, and those that exist beside them."""

    selected: list[str]
    others: list[str]


@dataclass(frozen=True, slots=True)
class Started:
    """The engine can be judged; what it says of itself."""

    engine: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Judged:
    """One case has its verdict."""

    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Warned:
    """Something went wrong that belongs to no case."""

    text: str


Update = Collected | Started | Judged | Warned


@dataclass(slots=True)
class _Running:
    record: dict[str, Any]
    since: float
    log_from: int
    asked: float = 0.0
    """When a hung process was asked for its traceback; 0 when it was not."""


class Supervisor:
    """One run of a plan; `judged` are cases that already have a verdict.

    Iterating runs it. Leaving the iteration early ends the child.
    """

    def __init__(self, plan: Plan, judged: set[str] | None = None) -> None:
        self._plan = plan
        self._judged = set(judged or ())
        self._running: dict[int, _Running] = {}
        self._waiting: set[str] | None = None
        self._told: set[type[Update]] = set()
        self._collected = self._started = False
        """What the child of the moment has done."""

    def collect(self) -> Collected:
        """The cases of the plan, without starting the engine."""
        for news in self._child(collect_only=True):
            if isinstance(news, Collected):
                return news
        raise AssertionError("a child that collects says so or fails")

    def __iter__(self) -> Iterator[Update]:
        while True:
            before = len(self._judged)
            yield from self._child()
            if not self._waiting:
                return
            if len(self._judged) == before:
                raise _broken("the child ended without judging a case", "")

    def _child(self, *, collect_only: bool = False) -> Iterator[Update]:
        with tempfile.TemporaryDirectory(prefix="verispec-") as name:
            scratch = Path(name)
            (scratch / "skip").write_text("".join(f"{case}\n" for case in sorted(self._judged)), encoding="utf-8")
            tail = Tail(scratch / "journal.jsonl")
            with (scratch / "pytest.log").open("wb") as log:
                child = subprocess.Popen(
                    self._plan.command(scratch, collect_only=collect_only),
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment(self._plan),
                    start_new_session=True,
                )
            try:
                yield from self._watch(child, tail, scratch)
            finally:
                _end(child)
                tail.close()
                self._running.clear()

    def _watch(self, child: subprocess.Popen[bytes], tail: Tail, scratch: Path) -> Iterator[Update]:
        began = time.monotonic()
        self._collected = self._started = False
        while True:
            ended = child.poll() is not None  # asked first: what it wrote before it ended is then all there
            for event in tail.new():
                for news in self._hear(event, scratch):
                    if isinstance(news, (Judged, Warned)) or type(news) not in self._told:
                        self._told.add(type(news))
                        yield news
            if ended:
                break
            self._end_hung()
            if not self._started and time.monotonic() - began > START_TIMEOUT:
                raise self._cannot_start("it did not start in time", scratch, child.pid)
            time.sleep(LOOK_EVERY)
        if not self._collected:
            raise _broken(_ending(child.returncode), _log_of(scratch, child.pid))
        if self._waiting and not self._started:
            raise self._cannot_start(_ending(child.returncode), scratch, child.pid)
        if child.returncode < 0 and child.pid not in self._running:
            yield Warned(f"outside of any case, {_ending(child.returncode)}")
        for pid in list(self._running):
            yield self._crash(pid, child.returncode if pid == child.pid else None, scratch)

    def _hear(self, event: Event, scratch: Path) -> Iterator[Update]:
        pid = event.get("pid", 0)
        match event["type"]:
            case "collected":
                self._collected = True
                self._waiting = set(event["selected"]) - self._judged
                yield Collected(event["selected"], event["others"])
            case "engine":
                self._started = True
                yield Started(event["engine"])
            case "refused":
                said = event["diagnostic"]
                raise VerispecError(said.pop("code"), said.pop("message"), **said, exit_code=exits.CANNOT_TELL)
            case "broken":
                raise _broken(f"{event['where']} cannot be collected", event["text"])
            case "start":
                self._running[pid] = _Running(event["case"], time.monotonic(), event["log"])
            case "case":
                self._running.pop(pid, None)
                yield self._verdict(event["case"])
            case "gone":
                if pid in self._running:
                    yield self._crash(pid, event["status"], scratch)
                elif event["status"] and not self._started:
                    raise self._cannot_start(_ending(event["status"]), scratch, pid)
                elif (event["status"] or 0) < 0:
                    yield Warned(f"outside of any case, {_ending(event['status'])}")

    def _verdict(self, record: dict[str, Any]) -> Judged:
        self._judged.add(record["id"])
        if self._waiting is not None:
            self._waiting.discard(record["id"])
        return Judged(record)

    def _crash(self, pid: int, status: int | None, scratch: Path) -> Judged:
        run = self._running.pop(pid)
        hung = bool(run.asked)
        message = f"no answer within {self._plan.timeout:g} s" if hung else _ending(status)
        outcome = "timeout" if hung else "crash"
        failure = {
            "kind": outcome,
            "message": message,
            "details": {"log": _log_of(scratch, pid, run.log_from)},
        }
        seconds = round(time.monotonic() - run.since, 6)
        return self._verdict({**run.record, "outcome": outcome, "seconds": seconds, "failure": failure})

    def _cannot_start(self, cause: str, scratch: Path, pid: int) -> VerispecError:
        return VerispecError(
            "V-ENG-START",
            f"the engine {self._plan.engine!r} cannot be started",
            where="--engine",
            cause=f"{cause}\n{_log_of(scratch, pid)}".rstrip(),
            hint="start it in Python alone to see more",
            exit_code=exits.CANNOT_TELL,
        )

    def _end_hung(self) -> None:
        """Ask a process that is too long at one case for its traceback, then kill it."""
        now = time.monotonic()
        for pid, run in self._running.items():
            if not run.asked and now - run.since > self._plan.timeout:
                run.asked = now
                _signal(pid, signal.SIGABRT)
            elif run.asked and now - run.asked > GRACE:
                _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child and its workers, which share its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    if child.stdin:
        child.stdin.close()


def _ending(status: int | None) -> str:
    if status is None:
        return "the process ended"
    if status < 0:
        return f"the process was ended by {signal.Signals(-status).name} ({signal.strsignal(-status)})"
    return f"the process ended itself with exit code {status}"


def _log_of(scratch: Path, pid: int, start: int = 0) -> str:
    """What a process printed last, from `start` on; its traceback where it left one, innermost call first."""
    for path in (scratch / f"{pid}.log", scratch / "pytest.log"):
        if path.exists() and path.stat().st_size > start:
            lines = path.read_bytes()[start:].decode(errors="replace").splitlines()
            fatal = next((n for n, line in enumerate(lines) if line.startswith("Fatal Python error")), None)
            return "\n".join(lines[-LOG_LINES:] if fatal is None else lines[fatal : fatal + LOG_LINES])
    return ""


def _broken(message: str, cause: str) -> VerispecError:
    return VerispecError(
        "V-RUN-CHILD",
        message,
        where="the suites",
        cause=cause,
        hint="this is a fault of the suites or of their environment, not of the engine",
        exit_code=exits.CANNOT_TELL,
    )

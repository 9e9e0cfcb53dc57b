"""One run from beginning to end: select, test, write down, resume."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from verispec import exits
from verispec.cases import selects
from verispec.cases.nearby import nearby
from verispec.errors import VerispecError
from verispec.expectations import Expectation, apply, unmatched
from verispec.run import runfile
from verispec.run.attribution import explain
from verispec.run.coverage import CLAIMED_OPS, Floor, shortfalls
from verispec.run.events import CaseEnded, Collected, EngineStarted, Rechecked, Stopped, Waiting, Warned
from verispec.run.files import new_run_file, remember
from verispec.run.plan import Plan
from verispec.run.progress import ProgressListener
from verispec.run.record import UNDECIDED, Record
from verispec.run.supervisor import Supervisor

MAX_CRASHES = 50
"""Crashes and hangs after which a run stops: at the default time limit, less than two hours of waiting."""


def command_line() -> list[str]:
    """Return the command as it was typed, without the folder of the program."""
    return ["verispec", *sys.argv[1:]]


_FATAL = ("V-RUN-RESUME", "V-RUN-WRITE", "V-RUN-RECORD")
"""Errors of the run itself, after which it is no use to write a footer."""


@dataclass(frozen=True, slots=True)
class Brakes:
    """Limits that stop a run before its last case.

    Attributes:
        max_crashes: stop after so many crashes and hangs, known ones included.
        exit_first: True stops at the first unexpected failure.
        max_time: stop after so many seconds; None for never.
        expected: ids of cases that are no reason for `exit_first`, because they failed before.
    """

    max_crashes: int = MAX_CRASHES
    exit_first: bool = False
    max_time: float | None = None
    expected: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Files:
    """The results file of a run: the one to write, and the one to complete."""

    out: Path | None = None
    resume: Path | None = None

    def target(self, plan: Plan) -> Path:
        """Return the path of the results file: the named one, the resumed one, or a new one."""
        named = self.out or self.resume
        return named.parent.resolve() / named.name if named else new_run_file(plan)


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of a run beside its plan.

    Attributes:
        files: files to write.
        expectations: known failures.
        brakes: conditions under which it stops early.
        floor: coverage that a result needs.
        command: the command line, for the header.
    """

    files: Files = Files()
    expectations: Sequence[Expectation] = ()
    brakes: Brakes = Brakes()
    floor: Floor = CLAIMED_OPS
    command: list[str] = field(default_factory=command_line)


def execute(plan: Plan, options: Options, listener: ProgressListener) -> tuple[runfile.Run, Path]:
    """Run `plan`. Return its results, from memory, and the path of its file.

    An interrupt (Ctrl-C, SIGTERM), a brake or an engine that cannot be started again ends the run with a footer
    that says so; earlier results are kept.

    Raises:
        VerispecError: when nothing can be tested at all, or the results file cannot be written.
    """
    files, entries = options.files, options.expectations
    if files.resume:
        runfile.read(files.resume)  # a file that is not there must not be made by locking it
    writer = runfile.Writer(files.target(plan))
    try:
        old = runfile.read(files.resume) if files.resume else None
        records = {r.id: apply(entries, runfile.without_expectations(r)) for r in old.records} if old else {}
        session = Session(plan, options, writer, records, old.header if old else None)
        began = time.monotonic()
        try:
            with listener, interruptible():
                session.judge(listener)
        except KeyboardInterrupt:
            if not session.header:
                raise
            session.reason = "interrupted"
        return session.finish(time.monotonic() - began), writer.path
    finally:
        writer.release()


def judge_one(plan: Plan) -> tuple[dict[str, Any], Record]:
    """Return the result of the one case of `plan`, and the header that a run of it would have. Write nothing."""
    header: dict[str, Any] = {}
    with interruptible():
        for event in Supervisor(plan):
            match event:
                case Collected():
                    require_selection(plan, event)
                case EngineStarted(_, engine):
                    header = runfile.make_header(plan, engine, 1, (), command_line())
                case CaseEnded(_, record):
                    return header, Record.from_json(record)
    raise AssertionError("a plan with a selection judges or fails")


class Session:
    """The state of a run in progress: its results so far, its file, and the reasons to stop.

    Args:
        plan: plan of the run.
        options: settings beside the plan.
        writer: writer of the results file, which `open` begins.
        records: results that exist already, by case id.
        resumed: header of the file that these came from; None for a new run.
    """

    def __init__(
        self,
        plan: Plan,
        options: Options,
        writer: runfile.Writer,
        records: dict[str, Record],
        resumed: Any,
    ) -> None:
        self.plan, self.options, self.writer, self.records = plan, options, writer, records
        self.resumed = resumed
        self.cases: Collected | None = None
        self.header: dict[str, Any] = {}
        self.reason = ""
        self.warnings: list[str] = []
        self.lost: list[str] = []
        self.crashes = 0

    def judge(self, listener: ProgressListener) -> None:
        """Run the cases that are left, then attribute failures to the ops that cause them."""
        max_time = self.options.brakes.max_time
        deadline = None if max_time is None else time.monotonic() + max_time
        supervisor = Supervisor(self.plan, self.records, recheck=True, deadline=deadline)
        try:
            with closing(iter(supervisor)) as events:  # type: ignore[type-var]
                for event in events:
                    self.hear(event, listener)
                    if self.reason:
                        return
        except VerispecError as error:
            if not self.records or not self.writer.begun or error.diagnostic.code in _FATAL:
                raise
            self.reason = f"ended early: {error.diagnostic.message}"
            self.warnings.append(str(error))
            return
        for record in explain(self.plan, list(self.records.values()), listener, deadline):
            self.keep(record)

    def hear(self, event: Any, listener: ProgressListener) -> None:
        """Process an event, and tell `listener`."""
        match event:
            case Collected():
                self.cases = event
                require_selection(self.plan, event)
                listener.expect(self.total, list(self.records.values()))
            case EngineStarted(_, engine):
                self.open(self._header(engine))
                listener.writing(self.writer.path)
            case CaseEnded(_, line):
                record = apply(self.options.expectations, Record.from_json(line))
                self.keep(record)
                listener.judged(record)
                self._brake(record)
            case Rechecked(line):
                if line["outcome"] not in UNDECIDED:
                    self.lost.append(line["id"])
            case Waiting(text):
                listener.waiting(text)
            case Warned(text):
                self.warnings.append(text)
            case Stopped(reason):
                if not self.writer.begun:
                    raise VerispecError(
                        "V-RUN-NO-TIME",
                        "the time was over before the engine had started",
                        where="--max-time",
                        hint="give more time: collecting the cases and starting the engine count too",
                        exit_code=exits.CANNOT_TELL,
                    )
                self.reason = reason

    def _brake(self, record: Record) -> None:
        brakes = self.options.brakes
        self.crashes += record.seen in ("crash", "timeout")
        surprising = record.failed and record.outcome != "xfail" and record.id not in brakes.expected
        if brakes.exit_first and surprising:
            self.reason = "stopped at the first failure (-x)"
        elif self.crashes >= brakes.max_crashes:
            self.reason = f"stopped after {self.crashes} crashes and hangs (--max-crashes)"

    def finish(self, seconds: float) -> runfile.Run:
        """Write the footer. Return the whole run."""
        assert self.cases is not None
        left = [case for case in self.cases.selected if case not in self.records]
        known = [*self.cases.selected, *self.cases.others]
        missing = unmatched(self.options.expectations, known) if self.plan.whole else ()
        counts: dict[str, int] = {}
        for record in self.records.values():
            counts[record.outcome] = counts.get(record.outcome, 0) + 1
        complete = not left and not self.reason
        records = tuple(self.records.values())
        footer = {
            "complete": complete,
            "reason": self.reason,
            "left": len(left),
            "counts": counts,
            "shortfalls": list(shortfalls(self.options.floor, records, self.lost)) if complete else [],
            "warnings": self.warnings,
            "unmatched": [entry.to_json() for entry in missing],
            "seconds": round(seconds, 3),
            "finished": runfile.now(),
        }
        self.writer.close(footer)
        return runfile.Run(self.header, records, footer)

    def _header(self, engine: dict[str, Any]) -> dict[str, Any]:
        options = self.options
        return runfile.make_header(
            self.plan, engine, self.total, options.expectations, options.command, options.floor.text
        )

    @property
    def total(self) -> int:
        """Number of cases, those of a resumed run included."""
        assert self.cases is not None
        return len({*self.cases.selected, *self.records})

    def open(self, header: dict[str, Any]) -> None:
        """Begin the results file. Raises VerispecError V-RUN-RESUME if a resumed run had another engine or packages."""
        if self.resumed:
            runfile.require_same_run(self.resumed, header, self.options.files.resume or self.writer.path)
        self.writer.begin(header, self.records.values())
        self.header = header
        remember(self.writer.path, self.plan.engine)

    def keep(self, record: Record) -> None:
        """Add a result, or replace the one of the same case."""
        self.records[record.id] = record
        self.writer.add(record)


def require_selection(plan: Plan, cases: Collected) -> None:
    """Require that every pattern matches a case: a typing error must not look like a run without failures.

    Raises:
        VerispecError: V-RUN-SELECT, with the nearest patterns.
    """
    known = [*cases.selected, *cases.others]
    for pattern in plan.only:
        if not any(pattern == case if plan.exact else selects(pattern, case) for case in known):
            near = nearby(pattern, known, exact=plan.exact)
            raise VerispecError(
                "V-RUN-SELECT",
                f"{pattern!r} {'is' if plan.exact else 'selects'} none of {len(known):,} cases",
                where="CASE" if plan.exact else "--only",
                hint=f"did you mean {' or '.join(map(repr, near))}?"
                if near
                else "list them with: verispec run --collect",
            )
    if plan.smoke and plan.only and not cases.selected:
        raise VerispecError(
            "V-RUN-SELECT",
            "smoke has no quick case that these patterns select",
            where="--only",
            hint="use verispec run with the same options",
        )


@contextmanager
def interruptible() -> Iterator[None]:
    """Have SIGTERM and SIGINT end a run with a footer, also where a shell started it with SIGINT ignored (``&``)."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""One run from beginning to end: select, judge, write down, resume."""

from __future__ import annotations

import difflib
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from verispec.cases import selects
from verispec.errors import VerispecError
from verispec.expectations import Expectation, apply, unmatched
from verispec.run import runfile
from verispec.run.attribution import explain
from verispec.run.plan import Plan
from verispec.run.progress import ProgressListener
from verispec.run.record import Record
from verispec.run.supervisor import Collected, Judged, Started, Supervisor, Warned
from verispec.static.sources import cache_dir


@dataclass(frozen=True, slots=True)
class Files:
    """Where a run is written and what it goes on from; `out` None keeps the engine's last run in the user's cache."""

    out: Path | None = None
    resume: Path | None = None

    def target(self, engine: str) -> Path:
        if self.out or self.resume:
            return (self.out or self.resume or Path()).absolute()
        return cache_dir() / "runs" / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', engine)}.{os.getpid()}.jsonl"

    def settle(self, path: Path) -> Path:
        """A run that nobody named takes the place of the engine's last one as soon as it has ended."""
        if self.out or self.resume:
            return path
        return path.replace(path.with_name(path.name.replace(f".{os.getpid()}.", ".")))


def execute(
    plan: Plan, files: Files, expectations: Sequence[Expectation], command: list[str], watcher: ProgressListener
) -> tuple[runfile.Run, Path]:
    """Judge `plan` and return the run and the path of its file.

    An interrupt (Ctrl-C, SIGTERM) ends the run with a footer that says so; what was judged is kept.
    Raises VerispecError when nothing can be judged at all.
    """
    old = runfile.read(files.resume) if files.resume else None
    records = {r.id: apply(expectations, runfile.without_expectations(r)) for r in old.records} if old else {}
    path = files.target(plan.engine)
    session = _Session(plan, path, expectations, command, records)
    if old:
        session.header = {**old.header, "expectations": [entry.to_json() for entry in expectations]}
        session.resumed = (files.resume or path, old.header)
    began = time.monotonic()
    reason = ""
    try:
        with watcher, _interruptible():
            session.judge(watcher)
    except KeyboardInterrupt:
        if not session.header:
            raise
        reason = "interrupted"
    session.finish(reason, time.monotonic() - began)
    return runfile.read(path), files.settle(path)


def judge_one(plan: Plan) -> tuple[dict[str, Any], Record]:
    """The verdict on the one case of `plan`, and the header that a run of it would have; nothing is written."""
    header: dict[str, Any] = {}
    with _interruptible():
        for news in Supervisor(plan):
            match news:
                case Collected():
                    _require_selection(plan, news)
                case Started():
                    header = runfile.make_header(plan, news.engine, 1, (), command_line())
                case Judged():
                    return header, Record.from_json(news.record)
    raise AssertionError("a plan with a selection judges or fails")


class _Session:
    """The state of a run in progress."""

    def __init__(
        self,
        plan: Plan,
        path: Path,
        expectations: Sequence[Expectation],
        command: list[str],
        records: dict[str, Record],
    ) -> None:
        self.plan, self.path, self.expectations, self.command, self.records = plan, path, expectations, command, records
        self.cases: Collected | None = None
        self.header: dict[str, Any] = {}
        self.resumed: tuple[Path, Any] | None = None
        self.warnings: list[str] = []
        self._writer: runfile.Writer | None = None

    def judge(self, watcher: ProgressListener) -> None:
        for news in Supervisor(self.plan, set(self.records)):
            match news:
                case Collected():
                    self.cases = news
                    _require_selection(self.plan, news)
                    watcher.expect(len(news.selected) + len(self.records), list(self.records.values()))
                case Started():
                    self._open(news.engine)
                case Warned():
                    self.warnings.append(news.text)
                case Judged():
                    record = apply(self.expectations, Record.from_json(news.record))
                    self.records[record.id] = record
                    self._write(record)
                    watcher.judged(record)
        for record in explain(self.plan, list(self.records.values()), watcher):
            self.records[record.id] = record
            self._write(record)

    def finish(self, reason: str, seconds: float) -> None:
        assert self.cases is not None
        left = [case for case in self.cases.selected if case not in self.records]
        missing = unmatched(self.expectations, [*self.cases.selected, *self.cases.others]) if self.plan.whole else ()
        counts: dict[str, int] = {}
        for record in self.records.values():
            counts[record.outcome] = counts.get(record.outcome, 0) + 1
        self._open_again().close(
            {
                "complete": not left,
                "reason": reason,
                "left": len(left),
                "counts": counts,
                "warnings": self.warnings,
                "unmatched": [entry.to_json() for entry in missing],
                "seconds": round(seconds, 3),
                "finished": runfile.now(),
            }
        )

    def _open(self, engine: dict[str, Any]) -> None:
        assert self.cases is not None
        total = len(self.cases.selected) + len(self.records)
        header = runfile.make_header(self.plan, engine, total, self.expectations, self.command)
        if self.resumed:
            path, before = self.resumed
            runfile.require_same_run(before, header, path)
        self.header = header
        self._open_again()

    def _open_again(self) -> runfile.Writer:
        if self._writer is None:
            self._writer = runfile.Writer(self.path, self.header, self.records.values())
        return self._writer

    def _write(self, record: Record) -> None:
        self._open_again().add(record)


def _require_selection(plan: Plan, cases: Collected) -> None:
    """Every pattern selects something, else a typing error would look like a run without failures."""
    known = [*cases.selected, *cases.others]
    for pattern in plan.only:
        if not any(pattern == case if plan.exact else selects(pattern, case) for case in known):
            depth = 1 + pattern.count(";")  # compared with as much of each id as the pattern has
            starts = dict.fromkeys(case if plan.exact else ";".join(case.split(";")[:depth]) for case in known)
            near = difflib.get_close_matches(pattern, starts, n=3, cutoff=0.5)
            raise VerispecError(
                "V-RUN-SELECT",
                f"{pattern!r} {'is' if plan.exact else 'selects'} none of {len(known):,} cases",
                where="CASE" if plan.exact else "--only",
                hint=f"near it: {', '.join(near)}" if near else "list them with: verispec run --collect",
            )


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM and SIGINT end a run with a footer, also where a shell started it with SIGINT ignored (``&``)."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def command_line() -> list[str]:
    """The command as it was typed, without the folder that the program lies in."""
    return ["verispec", *sys.argv[1:]]

"""The child's side of a supervised run: a log for each process, and word to the supervisor of all that happens."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from verispec import exits
from verispec.engines import Description
from verispec.errors import Diagnostic
from verispec.run.journal import Journal


class Narrator:
    """Registered as a pytest plugin in every process of a supervised run, workers included."""

    def __init__(self, scratch: Path, worker: str = "") -> None:
        """`worker` is the name that pytest-xdist gives this process, empty for the one that pytest started in."""
        self._scratch = scratch
        self._journal = Journal(scratch / "journal.jsonl")
        self._pid = os.getpid()
        _keep_log(scratch / f"{self._pid}.log")
        if worker:
            (scratch / f"{worker}.pid").write_text(str(self._pid), encoding="utf-8")
        else:
            threading.Thread(target=_end_with_the_supervisor, daemon=True).start()

    def collected(self, selected: Iterable[str], others: Iterable[str]) -> None:
        self._journal.write("collected", selected=list(selected), others=list(others))

    def started(self, engine: Description) -> None:
        described = {field: getattr(engine, field) for field in ("name", "version", "platform", "device", "details")}
        self._journal.write("engine", pid=self._pid, engine=described)

    def refused(self, diagnostic: Diagnostic) -> None:
        self._journal.write("refused", diagnostic=diagnostic.to_json())

    def begins(self, record: dict[str, Any]) -> None:
        self._journal.write("start", pid=self._pid, log=os.lseek(2, 0, os.SEEK_END), case=record)

    def ended(self, record: dict[str, Any]) -> None:
        self._journal.write("case", pid=self._pid, case=record)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A suite that cannot be collected ends the run: its cases would be missing without a word."""
        if report.failed:
            self._journal.write("broken", where=report.nodeid, text=str(report.longrepr))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        """A worker has ended: say how, which pytest-xdist does not know."""
        known = self._scratch / f"{node.gateway.id}.pid"
        if known.exists():
            pid = int(known.read_text(encoding="utf-8"))
            self._journal.write("gone", pid=pid, status=_status_of(pid))


def _keep_log(path: Path) -> None:
    """Whatever is printed here goes to a file of this process; a fatal signal leaves a Python traceback there."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    faulthandler.enable(file=2, all_threads=False)


def _end_with_the_supervisor() -> None:
    """The supervisor holds the other end of our stdin; when it is killed, nobody is left to judge for."""
    while os.read(0, 4096):
        pass
    os._exit(exits.CANNOT_TELL)


def _status_of(pid: int) -> int | None:
    """How the child `pid` ended, negative for a signal, None when nobody can tell; its owner still collects it."""
    if sys.platform == "win32" or not hasattr(os, "waitid"):
        return None
    for _ in range(100):
        try:
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:
            return None
        if ended is not None:
            return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        time.sleep(0.02)
    return None

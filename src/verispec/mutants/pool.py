"""Forked processes that run cases, and the limits of each case.

A limit is processor time of the process, which the load of a machine hardly changes. Wall time ends what uses none, as
a deadlock does.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import selectors
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from verispec.run.process_tree import waited_for_processor

Limit = Callable[[str], float]
"""Processor seconds of a case that count as too many, by its id."""
PATIENCE: Final = 8.0
"""Wall seconds per processor second of a limit; time spent waiting for a processor comes on top."""
STARTING: Final = 120.0
"""Limit in seconds before the first case."""


def processor_seconds() -> float:
    """Return the processor seconds of all threads of this process, and of children that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def limit_processor_time(seconds: float) -> None:
    """Have the system end this process (SIGXCPU) after `seconds` more on processors, rounded up to whole seconds."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = math.ceil(own.ru_utime + own.ru_stime + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


@dataclass(slots=True)
class CaseProcess:
    """A forked process that runs cases in order and reports each on a pipe."""

    pid: int
    pipe: int
    cases: list[str]
    began: float
    text: bytes = b""
    running: str = ""
    since: float = 0.0
    waited: float = 0.0
    results: list[dict[str, Any]] = field(default_factory=list)
    killed: bool = False


class Pool:
    """Forked processes, at most `processes` at a time."""

    def __init__(self, processes: int, limit: Limit) -> None:
        self._processes, self._limit = processes, limit
        self._selector = selectors.DefaultSelector()
        self._running: dict[int, CaseProcess] = {}

    @property
    def full(self) -> bool:
        """True if no further process may start."""
        return len(self._running) >= self._processes

    def __len__(self) -> int:
        return len(self._running)

    def add(self, child: CaseProcess) -> None:
        """Watch a process."""
        self._running[child.pipe] = child
        self._selector.register(child.pipe, selectors.EVENT_READ)

    def wait(self) -> Iterator[CaseProcess]:
        """Yield the processes that have ended, after at most half a second."""
        for key, _ in self._selector.select(0.5):
            child = self._running[key.fd]
            data = os.read(key.fd, 1 << 16)
            if data:
                self._hear(child, data)
                continue
            self._selector.unregister(key.fd)
            os.close(key.fd)
            del self._running[key.fd]
            _, status = os.waitpid(child.pid, 0)
            if child.running:
                child.results.append(self._ended(child, status))
            yield child
        for child in self._running.values():
            limit = PATIENCE * self._limit(child.running) if child.running else STARTING
            late = time.monotonic() - (child.since or child.began) - limit
            if late > 0 and not child.killed and late > waited_for_processor(child.pid) - child.waited:
                child.killed = True
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGKILL)

    def _ended(self, child: CaseProcess, status: int) -> dict[str, Any]:
        """Return the record of a case during which its process ended."""
        wall = time.monotonic() - child.since
        is_used_up = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
        record = {"case": child.running, "outcome": "crash", "seconds": wall, "reason": str(status)}
        if is_used_up or child.killed:
            limit = self._limit(child.running)
            reason = f"{limit:.1f} s of processor time used" if is_used_up else f"hung: {wall:.0f} s of wall time"
            record |= {"outcome": "timeout", "seconds": limit, "reason": reason}
        return record

    def _hear(self, child: CaseProcess, data: bytes) -> None:
        child.text += data
        *lines, child.text = child.text.split(b"\n")
        for line in lines:
            record = json.loads(line)
            if "start" in record:
                child.running, child.since = record["start"], time.monotonic()
                child.waited = waited_for_processor(child.pid)
            else:
                child.running = ""
                child.results.append(record)

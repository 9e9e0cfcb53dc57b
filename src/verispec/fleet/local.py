"""The executor of this machine: processes, bounded by cores and memory."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verispec.fleet import node
from verispec.fleet.messages import Done, Message, Refused, parsed
from verispec.fleet.plan import GIB, Resources
from verispec.fleet.tasks import Lost, Task
from verispec.run.logs import last_lines
from verispec.run.process_tree import kill_descendants, send_signal

KEPT_FREE = 0.1
"""Share of the available memory that no task gets."""
GRACE = 5.0
"""Seconds from asking a process to end to killing it."""


@dataclass(slots=True)
class _Running:
    task: Task
    process: subprocess.Popen[bytes]
    log: Any
    """Its temporary file for everything else that it prints."""
    rest: bytes = b""
    over: bool = False
    lines: list[Message] = field(default_factory=list)


class LocalExecutor:
    """Runs tasks as processes of this machine.

    Args:
        cores: processor cores to use; None for all that this process may use.
        memory: bytes to use; None for most of the available memory.
    """

    def __init__(self, cores: int | None = None, memory: int | None = None) -> None:
        self.cores = cores or len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(_cores()))
        self.memory = memory or int(_available_memory() * (1 - KEPT_FREE))
        self._running: dict[int, _Running] = {}
        self._selector = selectors.DefaultSelector()

    def refusal(self, resources: Resources) -> str:
        """Return the resources that this machine lacks."""
        if resources.gpus or resources.custom:
            wanted = [*(["gpus"] if resources.gpus else []), *resources.custom]
            return f"{' and '.join(wanted)} need a cluster that counts them (--on ray)"
        if resources.cores > self.cores:
            return f"a piece needs {resources.cores} cores; {self.cores} may be used"
        if resources.memory > self.memory:
            return f"a piece needs {_gib(resources.memory)} GiB of memory; {_gib(self.memory)} GiB may be used"
        return ""

    def slots(self, resources: Resources) -> int:
        """Return how many tasks with `resources` fit into this machine."""
        return max(min(self.cores // resources.cores, self.memory // resources.memory), 1)

    def fits(self, resources: Resources) -> bool:
        """Return whether cores and memory are free."""
        used = [running.task.resources for running in self._running.values()]
        return (
            sum(r.cores for r in used) + resources.cores <= self.cores
            and sum(r.memory for r in used) + resources.memory <= self.memory
        )

    def start(self, task: Task) -> None:
        """Start a process."""
        log = tempfile.NamedTemporaryFile(prefix="verispec-")  # noqa: SIM115 - closed when the process ends
        process = node.start(task.to_json(), log.file)
        running = _Running(task, process, log)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._running[id(task)] = running
        self._selector.register(process.stdout, selectors.EVENT_READ, running)

    def messages(self, seconds: float) -> Iterator[tuple[Task, Message | Lost]]:
        """Yield the messages of processes, and their exit status."""
        for key, _ in self._selector.select(seconds):
            running: _Running = key.data
            if id(running.task) not in self._running:  # stopped while this batch was read
                continue
            for message in self._read(running):
                running.over |= isinstance(message, (Done, Refused))
                yield running.task, message
                if id(running.task) not in self._running:  # stopped by the receiver
                    break
            else:
                if key.fileobj.closed:  # type: ignore[union-attr]
                    loss = self._forget(running)
                    if not running.over:
                        yield running.task, loss

    def _read(self, running: _Running) -> Iterator[Message]:
        """Yield the whole lines that can be read now; close the stream at its end."""
        stream = running.process.stdout
        assert stream is not None
        with contextlib.suppress(BlockingIOError):
            while True:
                block = os.read(stream.fileno(), 1 << 20)
                if not block:
                    self._selector.unregister(stream)
                    stream.close()
                    break
                *lines, running.rest = (running.rest + block).split(b"\n")
                running.lines += map(parsed, lines)
        while running.lines:
            yield running.lines.pop(0)

    def stop(self, task: Task) -> None:
        """Ask a process to end; kill it and everything below if it does not."""
        if running := self._running.get(id(task)):
            self._end([running])

    def close(self) -> None:
        """End all processes."""
        self._end(list(self._running.values()))
        self._selector.close()

    def _end(self, ended: list[_Running]) -> None:
        for running in ended:
            send_signal(running.process.pid, signal.SIGTERM)
        for running in ended:
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.process.wait(GRACE)
            if running.process.poll() is None:
                kill_descendants(running.process.pid)
                running.process.kill()
            if running.process.stdout and not running.process.stdout.closed:
                self._selector.unregister(running.process.stdout)
                running.process.stdout.close()
            self._forget(running)

    def _forget(self, running: _Running) -> Lost:
        self._running.pop(id(running.task), None)
        status = running.process.wait()
        said = last_lines(Path(running.log.name))
        running.log.close()
        return loss(status, said)


def loss(status: int, said: str) -> Lost:
    """Return the meaning of the exit status of a piece that did not send its last word.

    Args:
        status: status of the process; negative for a signal.
        said: the last lines that it printed.
    """
    if status < 0:
        return Lost(f"its process was ended by {signal.Signals(-status).name}", killed=True)
    return Lost(f"its process ended with {status}" + (f"\n{said}" if said else ""), by_itself=True)


def _cores() -> int:
    return os.cpu_count() or 1


def _available_memory() -> int:
    """Return the bytes of memory that programs can still get: on Linux by its own estimate, elsewhere all there are."""
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}"

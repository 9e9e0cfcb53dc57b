"""Events of a run: one typed union, one writer, one reader.

Every process of a run appends whole lines to one file, each with a single write. Lines therefore never
mix, and whatever a process wrote before it crashed can be read after the crash.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from verispec.run.json_lines import to_line

CANNOT_WRITE = 74
"""Exit status of a process that cannot write its events (EX_IOERR), for instance because the disk is full."""
LOG_CLOSED = 73
"""Exit status of a process whose engine has closed the event log with other files of the process."""


@dataclass(frozen=True, slots=True)
class Collected:
    """The suites are collected: ids of the cases that match the plan, and of all others."""

    selected: list[str]
    others: list[str]


@dataclass(frozen=True, slots=True)
class SuiteFailed:
    """A suite cannot be collected, or the harness raised outside of the engine."""

    where: str
    text: str


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """A worker process begins to start the engine."""

    pid: int


@dataclass(frozen=True, slots=True)
class EngineStarted:
    """The engine of a worker is ready; `engine` holds its description and the digest of its code."""

    pid: int
    engine: dict[str, Any]


@dataclass(frozen=True, slots=True)
class EngineRefused:
    """The engine of a worker cannot be tested; `diagnostic` says why, `exit_code` what that alone would mean."""

    pid: int
    diagnostic: dict[str, str]
    exit_code: int


@dataclass(frozen=True, slots=True)
class CasesTaken:
    """A worker took these cases from the queue."""

    pid: int
    cases: list[str]


@dataclass(frozen=True, slots=True)
class CaseStarted:
    """A case begins; `log` is the size of the worker's log at that moment."""

    pid: int
    log: int
    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CaseShrinks:
    """The case has failed; its worker now looks for a smaller call that fails in the same way."""

    pid: int


@dataclass(frozen=True, slots=True)
class CaseEnded:
    """A case has its result; `pid` is 0 where the supervisor wrote it for a process that crashed or hung."""

    pid: int
    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class EngineClosing:
    """A worker has no more cases and closes its engine."""

    pid: int


@dataclass(frozen=True, slots=True)
class CloseFailed:
    """The engine of a worker raised in `close()`."""

    pid: int
    text: str


@dataclass(frozen=True, slots=True)
class WorkerEnded:
    """A worker process has ended; a negative status is the number of the signal that ended it."""

    pid: int
    status: int


@dataclass(frozen=True, slots=True)
class Rechecked:
    """A case that the engine had rejected was run again in a fresh process, with this result."""

    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing has happened for a while; `text` says what the run waits for."""

    text: str


@dataclass(frozen=True, slots=True)
class Warned:
    """Something went wrong that belongs to no case."""

    text: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The run ends before its last case, for this reason."""

    reason: str


WorkerEvent = (
    Collected
    | SuiteFailed
    | WorkerStarted
    | EngineStarted
    | EngineRefused
    | CasesTaken
    | CaseStarted
    | CaseShrinks
    | CaseEnded
    | EngineClosing
    | CloseFailed
    | WorkerEnded
)
"""Events that processes write to the log."""

RunEvent = Collected | EngineStarted | CaseEnded | Rechecked | Waiting | Warned | Stopped
"""Events that the supervisor passes on to the session."""

Event = WorkerEvent | RunEvent

_TYPES: dict[str, type[Any]] = {kind.__name__: kind for kind in WorkerEvent.__args__}


class EventWriter:
    """Appends events to the log at `path`; one object per process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._pid = os.getpid()

    def write(self, event: WorkerEvent) -> None:
        """Append one event.

        An op under test may fork and let the copy of this process return. The copy ends here: only the
        process that made the writer reports. A process that cannot report ends with `CANNOT_WRITE`.
        """
        if os.getpid() != self._pid:
            os._exit(0)
        line = to_line({"event": type(event).__name__, **asdict(event)}).encode()
        try:
            while line := line[os.write(self._file, line) :]:
                pass  # a full disk takes a part of a line, and says why with the next part
        except OSError as error:
            _end(error)

    def in_this_process(self) -> EventWriter:
        """Return a writer to the same log for a process that was forked on purpose."""
        return EventWriter(self._path)


def _end(error: OSError) -> None:
    message = f"verispec: the event log cannot be written: {error.strerror or error}\n"
    try:
        os.write(2, message.encode())
    finally:
        os._exit(LOG_CLOSED if error.errno == errno.EBADF else CANNOT_WRITE)


class EventReader:
    """Reads the events that were appended to the log at `path` since the last look."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file = path.open("rb")
        self._rest = b""
        self.position = 0
        """Bytes of the log that were read."""

    def new(self) -> Iterator[WorkerEvent]:
        """Yield every whole new event."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        self.position = self._file.tell()
        for line in lines:
            yield _from_json(json.loads(line))

    def close(self) -> None:
        """Close the event file."""
        self._file.close()


def _from_json(fields: dict[str, Any]) -> WorkerEvent:
    event: WorkerEvent = _TYPES[fields.pop("event")](**fields)
    return event

"""How a child tells the supervisor what it does: one JSON line an event, appended to one file.

Every process of a run (pytest, and each of its workers) appends whole lines with a single write, so
that lines never mix and everything that was said before a crash is there after it. Events, by `type`:

    collected   selected, others: the ids of the cases that will run, and of all others
    engine      pid, engine: the engine's description; it can be judged
    refused     diagnostic: the engine cannot be judged
    broken      where, text: a suite cannot be collected
    start       pid, case: the record so far (id, test, reach); the case begins
    case        pid, case: the whole record; the case has ended
    gone        pid, status: a worker has ended; a negative status is the signal
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class Journal:
    """The writing side."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, kind: str, **event: Any) -> None:
        os.write(self._file, to_line({"type": kind, **event}).encode())


class Tail:
    """The reading side: every whole line that has been added since the last look."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file = path.open("rb")
        self._rest = b""

    def new(self) -> Iterator[Event]:
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            yield json.loads(line)

    def close(self) -> None:
        self._file.close()


def to_line(value: Any) -> str:
    """One line of strict JSON: NaN and infinities become text, and so does whatever JSON has no word for."""
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)

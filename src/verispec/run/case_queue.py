"""The queue of cases that the workers of a run share: a file with a lock, which outlives any process that crashes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_DIGITS = 12
"""Width of the first line, which holds the offset of the first waiting case."""
LARGEST = 32
"""Cases of a block where workers share the queue. The first suite has the slowest cases: one worker that takes most of
it ends long after the others. Blocks of 32 in 6,000 cases of 0.1 s leave two workers within 3 % of each other."""


class CaseQueue:
    """Case ids in order; `put` appends, `take` removes a block of neighbours.

    Neighbouring cases share what is expensive to load, so a worker takes many at once: everything when it is
    alone, up to `LARGEST` beside others, and fewer towards the end, so that all finish at about the same time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.exists():
            path.write_bytes(_offset(_DIGITS + 1))

    def put(self, cases: Iterable[str]) -> None:
        """Append `cases`."""
        with self._locked() as file:
            file.seek(0, os.SEEK_END)
            file.write("".join(f"{case}\n" for case in cases).encode())

    def take(self, workers: int) -> list[str]:
        """Remove and return the next block, where `workers` processes share the queue; empty when nothing is left."""
        with self._locked() as file:
            start = int(file.read(_DIGITS))
            file.seek(start)
            waiting = file.read().splitlines(keepends=True)
            block = waiting[: _share(len(waiting), workers)]
            file.seek(0)
            file.write(_offset(start + sum(map(len, block))))
            return [line.decode().rstrip("\n") for line in block]

    def clear(self) -> None:
        """Remove every waiting case."""
        self.take(1)

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        with self._path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file


def _offset(position: int) -> bytes:
    return f"{position:0{_DIGITS}d}\n".encode()


def _share(waiting: int, workers: int) -> int:
    return waiting if workers == 1 else min(-(-waiting // (4 * workers)), LARGEST)

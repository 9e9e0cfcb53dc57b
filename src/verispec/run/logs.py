"""Output of processes: bounded on disk, and read from its end."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

LARGEST = 32 << 20
"""Bytes of a log at which it is emptied; a process that prints without end must not fill the disk."""
TAIL = 64 << 10
"""Bytes at the end of a log that are read."""
LINES = 12
"""Lines that a report keeps."""
WIDTH = 500
"""Characters of a line that a report keeps."""


_CALL = "verispec: the next call has "
_FAULT = re.compile(r"Fatal Python error: (Segmentation fault|Bus error|Illegal instruction|Floating.point exception)")
LAST_CALL = "; its last call had "
"""Words of a crash's message before the call that its case announced."""


def announce(call: str) -> None:
    """Write a description of the next call of a case, for the report of a crash; a case makes many calls."""
    with contextlib.suppress(OSError):  # an engine may have closed the file
        os.write(2, f"{_CALL}{call}\n".encode())


def crash_of(how: str, path: Path, start: int, *, hung: bool) -> tuple[str, str]:
    """Return the outcome and the message of a case that ended its process.

    A process may have a fault, go on with broken memory, and abort or hang later: the fault is the reason.

    Args:
        how: end of the process, as its parent saw it.
        path: log of the process.
        start: byte of the log at which the case began.
        hung: True if the parent ended the process.
    """
    lines = _lines(path, start)
    fault = next((found[1] for line in lines if (found := _FAULT.match(line))), "")
    outcome = "timeout" if hung and not fault else "crash"
    if fault and f"({fault})" not in how:
        article = "an" if fault[0] in "AEIOU" else "a"
        end = "did not end" if hung else how.removeprefix("the process ")
        how = f"the process had {article} {fault.lower()} and {end}"
    call = next((line.removeprefix(_CALL) for line in reversed(lines) if line.startswith(_CALL)), "")
    return outcome, f"{how}{LAST_CALL}{call}" if call else how


def bound_log(path: Path) -> None:
    """Empty a log that has grown too large; its process continues to write at the new end."""
    try:
        if path.stat().st_size > LARGEST:
            os.truncate(path, 0)
    except FileNotFoundError:
        pass


def last_lines(path: Path, start: int = 0) -> str:
    """Return the last lines of a log from byte `start` on.

    A traceback that a fatal signal left is preferred: it is returned from its first line, innermost call first.
    """
    lines = [line for line in _lines(path, start) if not line.startswith(_CALL)]
    fatal = next((n for n, line in enumerate(lines) if line.startswith("Fatal Python error")), None)
    kept = lines[-LINES:] if fatal is None else lines[fatal : fatal + LINES]
    return "\n".join(line if len(line) <= WIDTH else f"{line[:WIDTH]}..." for line in kept)


def _lines(path: Path, start: int) -> list[str]:
    if not path.exists():
        return []
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        begin = start if start <= size else 0  # the log was emptied meanwhile
        file.seek(max(begin, size - TAIL))
        return file.read(TAIL).decode(errors="replace").splitlines()

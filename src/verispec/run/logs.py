"""Output of processes: bounded on disk, and read from its end."""

from __future__ import annotations

import os
from pathlib import Path

LARGEST = 32 << 20
"""Bytes of a log at which it is emptied; a process that prints without end must not fill the disk."""
TAIL = 64 << 10
"""Bytes at the end of a log that are read."""
LINES = 12
"""Lines that a report keeps."""
WIDTH = 500
"""Characters of a line that a report keeps."""


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
    if not path.exists():
        return ""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        begin = start if start <= size else 0  # the log was emptied meanwhile
        file.seek(max(begin, size - TAIL))
        lines = file.read(TAIL).decode(errors="replace").splitlines()
    fatal = next((n for n, line in enumerate(lines) if line.startswith("Fatal Python error")), None)
    kept = lines[-LINES:] if fatal is None else lines[fatal : fatal + LINES]
    return "\n".join(line if len(line) <= WIDTH else f"{line[:WIDTH]}..." for line in kept)

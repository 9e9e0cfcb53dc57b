"""The line of code at which a failing case raised, hung or ended its process."""

from __future__ import annotations

import re

from verispec.run.record import Record

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+),? in (?P<name>\S+)')
"""A frame as Python prints it: with a comma in a traceback, without one in the dump of a fatal signal."""
LIBRARIES = (
    *("torch/", "numpy/", "triton/", "jax/", "transformers/", "multiprocessing/", "asyncio/", "concurrent/"),
    *("threading.py", "subprocess.py", "selectors.py", "socket.py", "queue.py", "<"),
)
"""Beginnings of files that an engine calls; the line that called them tells more."""
HARNESS = ("verispec/", "_pytest/", "pluggy/")
WORDS = {"raised": "raised at", "timeout": "hung at", "crash": "the process ended at"}


def stopped_at(record: Record) -> str:
    """Return the engine's innermost line in the traceback of a failing case, with a verb; empty if there is none."""
    details = record.failure.get("details", {})
    verb = WORDS.get(record.kind, "")
    innermost_last, innermost_first = str(details.get("traceback", "")), str(details.get("log", ""))
    frames = [*reversed(_frames(innermost_last)), *_frames(innermost_first)]
    for file, place in frames if verb else ():
        if file.startswith(HARNESS) or "/suites/" in file:
            break  # who called the engine
        if not file.startswith(LIBRARIES):
            return f"{verb} {place}"
    return ""


def _frames(text: str) -> list[tuple[str, str]]:
    return [(found["file"], f"{found['file']}:{found['line']}, in {found['name']}") for found in _FRAME.finditer(text)]

"""The engine's line of code at which a failing case raised, hung or ended its process."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import PurePath
from typing import NamedTuple

from verispec.run.record import Record

_FRAME = re.compile(r'File "([^"\n]+)", line (\d+),? in (\S+)')
"""A frame as Python prints it: with a comma in a traceback, without one in the dump of a fatal signal."""
_CHECKOUT = re.compile(r".*/checkouts/[0-9a-f]+/([^/]+-\d[^/]*/)?")
"""Folders of an engine's sources in verispec's cache, whose names say nothing about the engine."""
_HARNESS = re.compile(r"(^|/)(verispec/(?!reference/)|verispec_extracted_|suites/(e2e|sampler|synthetic)/)")
"""Files of verispec, and those that it wrote of an engine's: their lines are not the engine's."""
_LIBRARIES = frozenset(("torch", "numpy", "triton", "jax", "jaxlib", "importlib_metadata"))
"""Packages that raise because of an argument of their caller."""
RAISED = "raised"
WORDS = {RAISED: f"{RAISED} at", "timeout": "hung at", "crash": "the process ended at"}


class _Frame(NamedTuple):
    path: str
    line: str
    function: str


def stopped_at(record: Record) -> str:
    """Return file, line and function of the engine's innermost frame, with a verb; empty if there is none.

    Frames of libraries that an engine calls are left out: the engine's own line tells what was wrong.
    """
    details = record.failure.get("details", {})
    # A traceback ends with the innermost frame. A dump begins with it, and goes on with who called the harness.
    raised = reversed(list(_frames(details.get("traceback", ""))))
    ended = takewhile(lambda frame: not _HARNESS.search(frame.path), _frames(details.get("log", "")))
    for frame in (*raised, *ended) if record.kind in WORDS else ():
        if not _HARNESS.search(frame.path) and not _is_library(PurePath(frame.path)):
            return f"{WORDS[record.kind]} {frame.path}:{frame.line}, in {frame.function}"
    return ""


def _frames(text: str) -> Iterator[_Frame]:
    return (_Frame(_CHECKOUT.sub("", path), line, function) for path, line, function in _FRAME.findall(text))


def _is_library(path: PurePath) -> bool:
    first = path.parts[0].removesuffix(".py")
    return first in _LIBRARIES or first in sys.stdlib_module_names or path.parts[0].startswith("<")

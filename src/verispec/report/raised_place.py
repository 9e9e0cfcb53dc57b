"""Find where in an engine an exception was raised."""

from __future__ import annotations

import re
import sys
from pathlib import PurePath

_FRAME = re.compile(r'File "([^"\n]+)", line (\d+), in (\S+)')
_CHECKOUT = re.compile(r".*/checkouts/[0-9a-f]+/[^/]+/")
"""Folder of an engine's sources in verispec's cache, whose name says nothing about the engine."""
_HARNESS = re.compile(r"(^|/)(verispec/(?!reference/)|verispec_extracted_|suites/(e2e|sampler|synthetic)/)")
"""Files of verispec, and those that it wrote of an engine's: their lines are not the engine's."""
_LIBRARIES = frozenset(("torch", "numpy", "triton", "jax", "jaxlib", "importlib_metadata"))
"""Packages that raise because of an argument of their caller."""


def raised_place(traceback: str) -> str:
    """Return file, line and function of the innermost frame of an engine; empty if the traceback has none.

    Frames of libraries that an engine calls are left out: the engine's own line tells what was wrong.
    """
    frames = ((_CHECKOUT.sub("", path), line, function) for path, line, function in _FRAME.findall(traceback))
    places = [
        f"{path}:{line}, in {function}"
        for path, line, function in frames
        if not _HARNESS.search(path) and not _is_library(PurePath(path))
    ]
    return places[-1] if places else ""


def _is_library(path: PurePath) -> bool:
    first = path.parts[0].removesuffix(".py")
    return first in _LIBRARIES or first in sys.stdlib_module_names or path.parts[0].startswith("<")

"""The engine's part of a traceback, as a report shows it."""

from __future__ import annotations

import traceback
from pathlib import Path

from verispec.errors import portable

FRAMES = 12
"""Innermost frames that are kept."""

_HARNESS = Path(__file__).resolve().parents[1]


def engine_traceback(error: BaseException) -> str:
    """Return the frames of `error` from the first one outside `verispec.judge`, innermost last, and its cause.

    Paths are relative to where Python finds the modules, so that a results file says nothing about the machine.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = next((n for n, frame in enumerate(frames) if not _is_judge(frame.filename)), len(frames) - 1)
    lines = traceback.format_list(frames[max(own, len(frames) - FRAMES) :])
    causes = traceback.format_exception_only(error)
    return portable("".join([*lines, *causes])).rstrip()


def _is_judge(filename: str) -> bool:
    return Path(filename).resolve().is_relative_to(_HARNESS / "judge")

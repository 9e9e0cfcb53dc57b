"""Functions that mutated Python files call: triggers, stale values, and the record of reached mutants."""

from __future__ import annotations

import itertools
import sys
from typing import Any

from verispec.mutants.operators_python import IN_LATER_PROGRAMS, REPEATED, TRIGGERS

seen: dict[int, int] = {}
"""Statement numbers of covered files, offset by file, to a bit for each trigger that held."""
_counts: dict[int, int] = {}
_calls = itertools.count(1)
_before: dict[str, Any] = {}
_ALWAYS, _PROGRAM, _REPEATED = (1 << i for i in range(len(TRIGGERS)))


def _program() -> int:
    """Return the first index of the Triton program that runs in the interpreter, or -1."""
    interpreter = sys.modules.get("triton.runtime.interpreter")
    index = getattr(getattr(interpreter, "interpreter_builder", None), "grid_idx", None)
    return int(index[0]) if index else -1


def acts(trigger: str) -> bool:
    """Return True if a mutant with this trigger acts now."""
    if trigger == IN_LATER_PROGRAMS:
        return _program() >= 64
    return next(_calls) >= REPEATED


def reached(statement: int) -> None:
    """Record that a statement runs, and which triggers hold."""
    count = _counts[statement] = _counts.get(statement, 0) + 1
    bits = _ALWAYS | (_PROGRAM if _program() >= 64 else 0) | (_REPEATED if count >= REPEATED else 0)
    seen[statement] = seen.get(statement, 0) | bits


def previous(key: str, now: Any) -> Any:
    """Return the value that this place had at its last evaluation; at the first, its own."""
    was = _before.get(key, now)
    _before[key] = now
    return was

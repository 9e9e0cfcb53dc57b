"""The id of the case that this process runs: for an adapter that tells in which case a server ended."""

from __future__ import annotations

_running = [""]


def begin_case(case: str) -> None:
    """Set the id of the case that begins."""
    _running[0] = case


def running_case() -> str:
    """Return the id of the case that runs; "" before the first one."""
    return _running[0]

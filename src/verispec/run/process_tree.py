"""Processes below a process: found whatever session they moved to, and ended.

An engine may start servers that leave its process group. On Linux a process can ask to become the parent of
every orphan below it, so nothing that an engine started can hide from the tree.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

_SET_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36
_ROUNDS = 200
"""Attempts to end a tree whose processes start others meanwhile."""


def adopt_orphans() -> None:
    """Make this process the parent of every orphan below it, where the system can (Linux)."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the system kill this process when its parent ends, where the system can (Linux)."""
    _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def resume_when_parent_ends() -> None:
    """Have the system continue this process, if it is stopped, when its parent ends: the end of `die_with_parent`."""
    _prctl(_SET_DEATH_SIGNAL, signal.SIGCONT)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def descendants(root: int, *, without: Iterable[int] = ()) -> list[int]:
    """Return the living processes below `root`; `without` names children of `root` to leave out with all below them."""
    children: dict[int, list[int]] = {}
    for pid, parent in _living():
        children.setdefault(parent, []).append(pid)
    skipped = set(without)
    found: list[int] = []
    waiting = [pid for pid in children.get(root, []) if pid not in skipped]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found


def kill_descendants(root: int, *, without: Iterable[int] = ()) -> None:
    """Kill every process below `root`, and those that they start meanwhile."""
    for _ in range(_ROUNDS):
        found = descendants(root, without=without)
        if not found:
            return
        for pid in found:
            send_signal(pid, signal.SIGKILL)
        time.sleep(0.005)


def waited_for_processor(root: int) -> float:
    """Return the seconds for which `root` and the processes below it were ready to run and other programs ran.

    Only Linux reports it; elsewhere it is 0. Threads other than the first of a process do not count.
    """
    waited = 0
    for pid in (root, *descendants(root)):
        with contextlib.suppress(OSError, ValueError, IndexError):
            waited += int(Path("/proc", str(pid), "schedstat").read_text().split()[1])
    return waited / 1e9


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _living() -> list[tuple[int, int]]:
    """Return (pid, parent's pid) of all processes that have not ended."""
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True, check=False)
        rows = [line.split() for line in listed.stdout.splitlines()]
        return [(int(pid), int(parent)) for pid, parent, state in rows if not state.startswith("Z")]
    found = []
    for entry in os.listdir("/proc"):  # noqa: PTH208 - thousands of entries, ten times a second while a tree ends
        if entry.isdigit():
            with contextlib.suppress(OSError):
                # The name of the command stands in parentheses and may hold anything.
                fields = Path("/proc", entry, "stat").read_text(errors="replace").rpartition(")")[2].split()
                if fields[0] not in "ZX":
                    found.append((int(entry), int(fields[1])))
    return found


def ended_for_memory() -> int:
    """Return how many processes the system has ended because memory ran out; only Linux tells, elsewhere it is 0."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0

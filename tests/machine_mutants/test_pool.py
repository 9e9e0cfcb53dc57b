"""Limits of the processes that run cases of mutants."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from verispec.mutants import plugin

LIMIT = 0.2


def child(seconds: float) -> plugin._Child:
    """Fork a process whose only case takes `seconds`."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, b'{"start": "a"}\n')
        time.sleep(seconds)
        os.write(writing, b'{"case": "a", "outcome": "pass"}\n')
        os._exit(0)
    os.close(writing)
    return plugin._Child(pid, reading, ["a"], time.monotonic())


def outcome(running: plugin._Child) -> str:
    """Return the outcome of the case of `running` under the limit."""
    job: Any = SimpleNamespace(processes=1)
    pool = plugin._Pool(job, lambda case: LIMIT)
    pool.add(running)
    while len(pool):
        for ended in pool.wait():
            return str(ended.results[-1]["outcome"])
    raise AssertionError("no process ended")


@pytest.mark.parametrize(
    ("seconds", "waited", "expected"),
    [(300.0, lambda: 0.0, "timeout"), (6 * LIMIT, time.monotonic, "pass"), (0.0, lambda: 0.0, "pass")],
)
def test_only_time_on_a_processor_counts(
    seconds: float, waited: Callable[[], float], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "waited_for_processor", lambda pid: waited())
    assert outcome(child(seconds)) == expected

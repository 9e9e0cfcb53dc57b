"""Limits of the processes that run cases of mutants."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from verispec.mutants import plugin, pool

LIMIT = 0.5
BUSY = "import time\nwhile time.process_time() < {}: pass"


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def record_of(action: Callable[[], object], monkeypatch: pytest.MonkeyPatch, device: str = "") -> dict[str, Any]:
    """Return the record of a case that calls `action` in a process under the limit."""

    def limit(case: str) -> float:
        return LIMIT

    def run(item: Any, following: Any) -> dict[str, Any]:
        action()
        return {"outcome": "pass"}

    monkeypatch.setattr(plugin, "_run_one", run)
    job: Any = SimpleNamespace(device=device, active=SimpleNamespace(cover=lambda: None, reached=list))
    item: Any = SimpleNamespace(stash={}, nodeid="a")
    running = pool.Pool(1, limit)
    running.add(plugin._fork(job, {"a": item}, ["a"], limit, None, None))
    while len(running):
        for ended in running.wait():
            (record,) = ended.results
            return record
    raise AssertionError("no process ended")


def test_processor_time_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    record = record_of(lambda: burn(60), monkeypatch)
    assert (record["outcome"], record["seconds"]) == ("timeout", LIMIT)
    assert "processor time" in record["reason"]


def test_wall_time_is_neither_limited_nor_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine gives a case little of each second; it is then neither cut off nor omitted as slow."""
    record = record_of(lambda: time.sleep(2 * LIMIT), monkeypatch)
    assert record["outcome"] == "pass"
    assert record["seconds"] < LIMIT


def test_processor_time_is_recorded_with_that_of_children(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> None:
        burn(0.1)
        subprocess.run([sys.executable, "-S", "-c", BUSY.format(0.1)], check=True)

    assert record_of(run, monkeypatch)["seconds"] >= 0.2


def test_the_first_use_of_a_kernel_on_a_device_is_not_part_of_a_case_s_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process compiles or loads kernels in its first cases, which would be omitted as slow in every process."""
    monkeypatch.setattr(plugin, "REPEATED", 0.1)
    seconds = iter((0.3, 0.0))
    record = record_of(lambda: burn(next(seconds)), monkeypatch, device="cpu")
    assert record["outcome"] == "pass"
    assert record["seconds"] < 0.1


@pytest.mark.parametrize(("waited", "expected"), [(lambda: 0.0, "timeout"), (time.monotonic, "pass")])
def test_what_hangs_is_ended(waited: Callable[[], float], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time for which a process waits for a processor does not count."""
    monkeypatch.setattr(pool, "PATIENCE", 1.0)
    monkeypatch.setattr(pool, "waited_for_processor", lambda pid: waited())
    record = record_of(lambda: time.sleep(300.0 if expected == "timeout" else 4 * LIMIT), monkeypatch)
    assert record["outcome"] == expected
    assert expected == "pass" or "hung" in record["reason"]

"""A leak grows with every call; a cache that fills and a pool that starts its threads are none."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator

import pytest
import torch

from verispec.judge import Mismatch
from verispec.judge.resources import ROUNDS, assert_nothing_kept

CALLS = 12
MEGABYTE = 1 << 20


@pytest.fixture
def thread() -> Iterator[Callable[[], None]]:
    """Return a function that starts a thread, which ends after the test."""
    end = threading.Event()
    yield lambda: threading.Thread(target=end.wait, daemon=True).start()
    end.set()


def test_a_leak_is_seen(thread: Callable[[], None]) -> None:
    kept: list[torch.Tensor] = []
    with pytest.raises(Mismatch, match=rf"each of {ROUNDS} rounds of {CALLS} equal calls left {CALLS} more threads"):
        assert_nothing_kept(thread, CALLS, MEGABYTE)
    with pytest.raises(Mismatch, match=rf"rounds of {CALLS} equal calls left [\d,]+ more bytes in use"):
        assert_nothing_kept(lambda: kept.append(torch.ones(MEGABYTE)), CALLS, MEGABYTE)


def test_what_stops_growing_is_no_leak(thread: Callable[[], None]) -> None:
    numbers, cache = itertools.count(), {}

    def call() -> None:
        number = next(numbers)
        if number < 2 * CALLS:
            thread()
            cache[number] = torch.ones(2 * MEGABYTE)
        cache[number % CALLS] = torch.ones(2 * MEGABYTE)

    assert_nothing_kept(call, CALLS, MEGABYTE)


def test_tensors_of_a_gpu_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resident memory shows none of them."""
    living = [0]

    def call() -> None:
        living[0] += MEGABYTE

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda number: living[0] if number else 5)
    with pytest.raises(
        Mismatch, match=rf"each of {ROUNDS} rounds of {CALLS} equal calls left [\d,]+ more bytes in use"
    ):
        assert_nothing_kept(call, CALLS, MEGABYTE // 2)

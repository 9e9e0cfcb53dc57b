"""Times of calls that run in turn, and the memory bandwidth to compare them with."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Call = Callable[[], object]
SAMPLES = 15
MINIMUM = 2e-3
"""Seconds that a sample lasts at least, so that neither clock decides."""
COLD_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Time:
    """Microseconds per call: median, and the quartiles around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Time:
        """Return median and quartiles of `samples`."""
        ordered = sorted(samples)
        at = len(ordered) - 1
        return cls(ordered[at // 2], ordered[at // 4], ordered[at - at // 4])


def measure(calls: Sequence[Sequence[Call]], device: str, samples: int = SAMPLES) -> list[Time]:
    """Time several contestants, in turn, so that a slow moment of the machine meets all of them.

    Args:
        calls: call of each contestant over one or several sets of inputs, which a sample goes through in order.
        device: "cpu" measures processor time, "cuda" the replay of a captured graph.
        samples: measurements per contestant.
    """
    sampler = _graph_sampler if device == "cuda" else _cpu_sampler
    contestants = [sampler(group) for group in calls]
    found: list[list[float]] = [[] for _ in contestants]
    for _ in range(samples):
        for contestant, times in zip(contestants, found, strict=True):
            times.append(contestant() * 1e6)
    return [Time.of(times) for times in found]


def _cpu_sampler(group: Sequence[Call]) -> Callable[[], float]:
    """Return a sampler of the processor time per call, in seconds over all threads."""

    def once(turns: int) -> float:
        began = time.process_time()
        for _ in range(turns):
            for call in group:
                call()
        return time.process_time() - began

    once(1)
    turns = max(1, round(MINIMUM / max(once(1), 1e-6)))
    return lambda: once(turns) / (turns * len(group))


def _graph_sampler(group: Sequence[Call]) -> Callable[[], float]:
    """Return a sampler of the seconds per call of a captured graph; compile and allocate before the capture."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in group:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    turns = max(1, 20 // len(group))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(turns):
            for call in group:
                call()

    def once() -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / (turns * len(group))

    once()
    return once


def reader(size: int, device: str) -> list[Call]:
    """Return calls that read `size` bytes once each, over as many buffers as make large sizes cold."""
    import torch

    sets = 1 if device == "cpu" else max(1, COLD_BYTES // max(size, 1))
    buffers = [torch.ones(max(size // 4, 1), device=device) for _ in range(sets)]
    return [buffer.sum for buffer in buffers]

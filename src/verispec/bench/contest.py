"""Two engines over the same inputs: checked first, then timed in turn."""

from __future__ import annotations

from typing import Any

import torch

from verispec.bench.inputs import BenchShape, make
from verispec.bench.rendering import BenchResult
from verispec.bench.steps import check, needed_bytes, step_of
from verispec.bench.timing import COLD_BYTES, measure, reader
from verispec.engines.registry import resolve


class Contest:
    """Times one engine, or two side by side.

    Args:
        engine: name of the engine; ``:ops`` at its end asks for its separate ops.
        peer: the same of the engine beside it; empty for none.
        device: "cpu", "cuda" or None for the engine's own choice.
        threads: threads of torch and OpenMP on the CPU.
        samples: measurements per shape and engine.
    """

    def __init__(self, engine: str, peer: str, device: str | None, threads: int, samples: int) -> None:
        self._samples, self._threads = samples, threads
        self._sides = [_side(name, device) for name in (engine, peer) if name]
        self.device = self._sides[0][0].describe().device

    def header(self) -> dict[str, Any]:
        """Return the identity of the run: engines, device, threads and versions."""
        names = [f"{d.name} {d.version}" for d in (engine.describe() for engine, _ in self._sides)]
        device = torch.cuda.get_device_name() if self.device == "cuda" else "cpu"
        return {"engines": names, "device": device, "threads": self._threads, "torch": torch.__version__}

    def run(self, shape: BenchShape) -> BenchResult:
        """Check and time both engines on `shape`."""
        torch.set_num_threads(self._threads)
        first = make(shape, self.device)
        sets = 1
        if self.device == "cuda" and shape.batch > 1:
            sets = max(1, COLD_BYTES // (first["target_logits"].numel() * first["target_logits"].element_size()))
        inputs = [first, *(make(shape, self.device, seed) for seed in range(1, sets))]
        steps = [[step_of(engine, shape, each, way) for each in inputs] for engine, way in self._sides]
        for side in steps:
            check(side[0], shape, first)
        size = needed_bytes(steps[0][0], shape, first)
        contestants = [[step.run for step in side] for side in steps]
        *times, read = measure([*contestants, reader(size, self.device)], self.device, self._samples)
        peer = times[1] if len(times) > 1 else None
        return BenchResult(shape, times[0], steps[0][0].way, peer, steps[1][0].way if peer else "", read, size)


def _side(name: str, device: str | None) -> tuple[Any, str]:
    plain = name.removesuffix(":ops")
    return resolve(plain, device), "ops" if plain != name else ""

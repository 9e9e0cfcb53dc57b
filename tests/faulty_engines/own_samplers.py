"""Whole samplers as users write them: the example's, and the example's with one fault each."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

from verispec.engines import SamplerBatch, Trace

_FILE = Path(__file__).resolve().parents[2] / "examples/own_engine/my_engine.py"
_spec = importlib.util.spec_from_file_location("my_engine", _FILE)
assert _spec is not None
assert _spec.loader is not None
example = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(example)


class Correct(example.Engine):  # type: ignore[name-defined, misc]
    """The example as it is."""


def using(sampler: Any) -> Any:
    """The example with another sampler."""
    return type(sampler.__name__, (example.Engine,), {"sampler": lambda self, family="flat": sampler()})


class _Untraced:
    """A correct sampler without the optional method `trace`."""

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        tokens: list[list[int]] = example.Sampler()(batch)
        return tokens


class _Raises:
    """Fails in a function of its own."""

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        return look_up(batch)


def look_up(batch: SamplerBatch) -> list[list[int]]:
    raise RuntimeError(f"no kernel for {batch.vocab_size} tokens")


class _RecoversZero:
    """Emits token 0 for every rejected draft token of a sampled request."""

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        rows = []
        for tokens, count, heat in zip(example.Sampler()(batch), batch.counts, batch.temperature.tolist(), strict=True):
            rejected = len(tokens) <= count and heat > 0
            rows.append([*tokens[:-1], 0] if rejected else tokens)
        return rows


class _ReturnsNone:
    """Forgets to return its tokens."""

    def __call__(self, batch: SamplerBatch) -> None:
        example.Sampler()(batch)


class _TellsSome(example.Sampler):  # type: ignore[name-defined, misc]
    """Reports random samples of requests with one draft alone, and emits token 0 in the others' trace."""

    def trace(self, batch: SamplerBatch) -> Trace:
        told = super().trace(batch)
        one = [count < 2 for count in batch.counts]
        tokens = [tokens if alone else [0] for tokens, alone in zip(told.tokens, one, strict=True)]
        return Trace(tokens, [draws if alone else None for draws, alone in zip(told.draws, one, strict=True)])


class _TracesAnother(example.Sampler):  # type: ignore[name-defined, misc]
    """Reports the samples of another generator than that of its calls."""

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        seeds = [seed if seed is None else seed + 1 for seed in batch.seeds or [None] * len(batch.counts)]
        tokens: list[list[int]] = self.trace(replace(batch, seeds=seeds)).tokens
        return tokens


Untraced, Raises, AlwaysRecoversZero, ReturnsNone, TellsSome, TracesAnother = map(
    using, (_Untraced, _Raises, _RecoversZero, _ReturnsNone, _TellsSome, _TracesAnother)
)

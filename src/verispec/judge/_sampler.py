"""A whole sampler under judgement: what it raises is a verdict, not an accident of the suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verispec.judge._failure import call_engine

if TYPE_CHECKING:
    from verispec.engines.protocol.sampling import SamplerBatch, Trace, WholeSampler


class SamplerUnderTest:
    """A `WholeSampler` that turns every exception of the engine, except `UnsupportedCall`, into a `Mismatch`."""

    def __init__(self, sampler: WholeSampler) -> None:
        self._sampler = sampler

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        return call_engine(lambda: self._sampler(batch))

    def trace(self, batch: SamplerBatch) -> Trace:
        return call_engine(lambda: self._sampler.trace(batch))

"""An end-to-end sampler under test."""

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
        """Return the tokens of `batch` and the random numbers that produced them."""
        return call_engine(lambda: self._sampler.trace(batch))

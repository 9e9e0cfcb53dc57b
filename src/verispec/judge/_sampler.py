"""A whole sampler under judgement: what it raises is a verdict, not an accident of the suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verispec.judge._failure import judged

if TYPE_CHECKING:
    from verispec.engines.sampling import SamplerBatch, Trace, WholeSampler


class SamplerUnderTest:
    """Answers `verispec.engines.sampling.WholeSampler`; anything raised but `UnsupportedCall` is a `Mismatch`."""

    def __init__(self, sampler: WholeSampler) -> None:
        self._sampler = sampler

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        return judged(lambda: self._sampler(batch))

    def trace(self, batch: SamplerBatch) -> Trace:
        return judged(lambda: self._sampler.trace(batch))

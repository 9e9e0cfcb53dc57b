"""A whole sampler under judgement: what it raises is a verdict, not an accident of the suite."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from verispec.engines import UnsupportedCall
from verispec.judge._failure import verdict_on

if TYPE_CHECKING:
    from verispec.engines.sampling import SamplerBatch, Trace, WholeSampler

Answer = TypeVar("Answer")


class SamplerUnderTest:
    """Answers `verispec.engines.sampling.WholeSampler`; anything raised but `UnsupportedCall` is a `Mismatch`."""

    def __init__(self, sampler: WholeSampler) -> None:
        self._sampler = sampler

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        return self._judged(self._sampler, batch)

    def trace(self, batch: SamplerBatch) -> Trace:
        return self._judged(self._sampler.trace, batch)

    def _judged(self, call: Callable[[SamplerBatch], Answer], batch: SamplerBatch) -> Answer:
        try:
            return call(batch)
        except UnsupportedCall:
            raise
        except Exception as error:
            raise verdict_on(error) from error

"""A whole sampler under judgement: what it raises is a verdict, and what it was given is compared afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from verispec.judge._failure import Failure, Kind, Mismatch, call_engine
from verispec.judge._memory import bits

if TYPE_CHECKING:
    from verispec.engines.protocol.sampling import SamplerBatch, Trace, WholeSampler

Answer = TypeVar("Answer")


class SamplerUnderTest:
    """Answers `verispec.engines.protocol.sampling.WholeSampler`; anything raised but `UnsupportedCall` is a `Mismatch`.

    The engine gets a copy of the batch. So an expectation that is computed from the caller's batch after the call
    is about what was asked, and a sampler that writes to its inputs is found out whatever it emits.
    """

    def __init__(self, sampler: WholeSampler) -> None:
        self._sampler = sampler

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        return self._watched(batch, self._sampler)

    def trace(self, batch: SamplerBatch) -> Trace:
        return self._watched(batch, self._sampler.trace)

    def _watched(self, batch: SamplerBatch, call: Callable[[SamplerBatch], Answer]) -> Answer:
        given = _copied(batch)
        answer = call_engine(lambda: call(given))
        changed = [f.name for f in fields(batch) if not _equal(getattr(batch, f.name), getattr(given, f.name))]
        if changed:
            names = ", ".join(changed)
            raise Mismatch(Failure(Kind.INPUT_CHANGED, f"the sampler changed its input {names}", names))
        return answer


def _copied(batch: SamplerBatch) -> SamplerBatch:
    """A batch of the same values in memory of its own, with the strides that the caller chose."""
    import torch

    def copied(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.clone(memory_format=torch.preserve_format)
        if isinstance(value, (list, tuple)):
            return [list(v) if isinstance(v, (list, tuple)) else v for v in value]
        return value

    return replace(batch, **{f.name: copied(getattr(batch, f.name)) for f in fields(batch)})


def _equal(before: object, after: object) -> bool:
    import torch

    if isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor):
        same_form = before.shape == after.shape and before.dtype == after.dtype
        return same_form and bool((bits(before) == bits(after)).all())
    if isinstance(before, (list, tuple)) and isinstance(after, (list, tuple)):
        return len(before) == len(after) and all(map(_equal, before, after))
    return before == after

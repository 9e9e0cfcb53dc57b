"""Samplers that change after some calls, seen by ANY-4 of whole samplers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from verispec.engines.protocol.sampling import SamplerBatch
from verispec.judge import Mismatch
from verispec.reference.sampler.whole import WholeFlatSampler
from verispec.suites.sampler.test_every_sampler import test_later_calls_do_not_see_earlier_ones as later


class Tired:
    """The reference's sampler, which from some call on emits another last token."""

    def __init__(self, calls: int) -> None:
        self._left, self._sampler = calls, WholeFlatSampler()

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        tokens = self._sampler(batch)
        self._left -= 1
        if self._left < 0:
            tokens[-1][-1] = (tokens[-1][-1] + 1) % batch.vocab_size
        return tokens


def engine(calls: int) -> Any:
    return SimpleNamespace(sampler=lambda: Tired(calls))


@pytest.mark.parametrize("batch", ["greedy", "sampled", "mixed"])
def test_a_sampler_that_changes_after_twenty_calls_is_seen(batch: str) -> None:
    later(engine(1000), 3, "whole_sampler", None, batch)
    with pytest.raises(Mismatch, match="after 30 other calls"):
        later(engine(20), 3, "whole_sampler", None, batch)

"""Samplers and functions of rates that change after some calls, and the cases that see it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from verispec.engines.protocol.sampling import SamplerBatch
from verispec.judge import Mismatch, OpUnderTest
from verispec.reference import contracts
from verispec.reference.sampler import synthetic_rates
from verispec.reference.sampler.whole import WholeFlatSampler
from verispec.suites.sampler.test_every_sampler import test_later_calls_do_not_see_earlier_ones as later
from verispec.suites.synthetic import test_acceptance_length_to_rates as lengths
from verispec.suites.synthetic import test_resolve_synthetic_acceptance_rates as resolved


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


def tired(name: str, calls: int) -> OpUnderTest:
    """Return an op that answers as the reference does, and from some call on with one rate more."""
    left = [calls]

    def run(**arguments: Any) -> Any:
        answer = getattr(synthetic_rates, name)(**arguments)
        left[0] -= 1
        return answer if left[0] >= 0 else [*answer, 0.0]

    return OpUnderTest(contracts.load(name), run)


@pytest.mark.parametrize(
    ("name", "test"),
    [
        ("acceptance_length_to_rates", lengths.test_generated),
        ("resolve_synthetic_acceptance_rates", resolved.test_generated),
    ],
)
def test_rates_that_change_after_twenty_calls_are_seen(name: str, test: Any) -> None:
    test(tired(name, 1000), 3)
    with pytest.raises(Mismatch):
        test(tired(name, 20), 3)

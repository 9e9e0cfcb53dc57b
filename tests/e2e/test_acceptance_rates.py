"""GEN-9: rates of drafters as trained are those of K drafts in every verification. GEN-27: configured rates."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_runs import records_of

from verispec import fixtures
from verispec.engines.protocol.generation import FinishReason, GenerationRequest, GenerationResult, SpeculationMetrics
from verispec.judge import Inconclusive, Mismatch
from verispec.run.record import FAULT
from verispec.suites.e2e.test_limits import test_the_fixtures_drafters_are_accepted_as_trained as check
from verispec.suites.e2e.test_verification_methods import RESOLVED, mistaken_rates, pairs_law

DRAFT = "draft_model k=3"
RATES = fixtures.provenance()["acceptance"]["draft_model"]["acceptance_by_position"]
STEPS = 20
"""Verifications of each request."""
FIRST = 2
"""Requests that show whether an engine counts at all."""


class Counting:
    """A generator that has only counts: a share of the verifications has all three drafts, the others one."""

    def __init__(self, share: float, rates: Sequence[float]) -> None:
        self.share, self.rates, self.requests = share, rates, 0

    def generate(self, requests: Sequence[GenerationRequest]) -> list[GenerationResult]:
        self.requests += len(requests)
        return [GenerationResult((1,), FinishReason.LENGTH)] * len(requests)

    def metrics(self) -> SpeculationMetrics:
        steps = STEPS * self.requests
        whole = int(self.share * steps)
        accepted = tuple(int(rate * (whole if place else steps)) for place, rate in enumerate(self.rates))
        return SpeculationMetrics(steps, steps + 2 * whole, sum(accepted), accepted)


def judged(generator: Counting) -> None:
    prompts: Any = [(1, 2, 3)] * 64
    check(lambda draft, **options: generator, prompts, DRAFT)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("rates", [RATES, [rate / 4 for rate in RATES]], ids=["right", "wrong"])
def test_rates_that_are_clear_end_the_case_at_a_quarter(rates: Sequence[float]) -> None:
    """Steps without accepted drafts are several times as many: a busy machine ended the case by its time limit."""
    generator = Counting(1.0, rates)
    with contextlib.suppress(Mismatch):
        judged(generator)
    assert generator.requests == FIRST + 16


def test_rates_that_are_a_little_off_are_judged_on_all_prompts() -> None:
    generator = Counting(1.0, [rate * 0.8 for rate in RATES])
    with pytest.raises(Mismatch, match="draft 1 is accepted in"):
        judged(generator)
    assert generator.requests == FIRST + 64


def test_an_engine_that_chooses_fewer_drafts_has_other_rates() -> None:
    """Later drafts are in fewer verifications, so that they were called worse than trained."""
    with pytest.raises(Inconclusive, match=r"chose 2\.00 drafts per verification; the rates of training are of 3"):
        judged(Counting(0.5, RATES))


def test_all_drafts_are_compared() -> None:
    judged(Counting(1.0, RATES))
    with pytest.raises(Mismatch, match="draft 1 is accepted in"):
        judged(Counting(1.0, [rate / 2 for rate in RATES]))


@pytest.mark.parametrize("rates", RESOLVED.values())
def test_mistaken_rates_are_laws(rates: Sequence[float]) -> None:
    right, laws = pairs_law(rates), mistaken_rates(rates)
    assert all(np.isclose(law.sum(), 1) and law.min() >= 0 for both in laws.values() for law in both)
    sampled, greedy = laws["greedy requests accepted no draft"]
    assert np.allclose(sampled, right)
    assert not np.allclose(greedy, right)


@pytest.mark.slow
def test_greedy_requests_that_accept_all_are_named(tmp_path: Path) -> None:
    case = "verification_methods:GEN-27:rates=1 0.6 0;batch=mixed;draft=ngram k=3;target=tiny"
    failure = records_of("synthetic_mutants:greedy_numbers_of_zero", [case], tmp_path)[case]["failure"]
    assert failure["details"][FAULT] == "greedy requests accepted every draft with a rate above 0"

"""Planted faults are found at the sizes that the suites state, and named; a correct sampler is left alone."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from faulty_samplers import SimulatedSampler
from simulations import FAULTS, TESTS, correct, planted, row_sets, run

from verispec.cases.row_sets import LIMITS
from verispec.judge.statistics import faults
from verispec.judge.statistics.effects import of_steps
from verispec.judge.statistics.given_drafts import GivenDrafts
from verispec.judge.statistics.trial import failure_message


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_fault_is_found_and_named(fault: str) -> None:
    simulation = planted(fault, seed=1)
    evidence = run(simulation)
    best = evidence.best_bets()[0][0]
    assert evidence.failed, f"{fault}: log E {evidence.log_e:.1f} after {evidence.count}"
    assert 0 < simulation.trial.record["failed_at"] <= evidence.count
    assert best.key in FAULTS[fault].names
    message = failure_message(evidence, simulation.cap, run_seed=1)
    assert "--seed 1 repeats it" in message
    assert best.fault.name.partition("{")[0] in message


def test_every_named_fault_is_planted() -> None:
    """Tails that are too heavy have no simulation: every planted cause of them has a better name."""
    planted_names = {name for plan in FAULTS.values() for name in plan.names}
    assert set(faults.FAULTS) - planted_names == {"tail gained"}


def test_an_excluded_token_fails_at_once() -> None:
    evidence = run(planted("excluded", seed=1))
    assert evidence.log_e == math.inf
    assert "probability 0" in evidence.impossible[0]


def test_a_correct_sampler_passes_and_excludes_faults() -> None:
    evidence = run(correct("drafts", seed=1, limits="none"))
    assert not evidence.failed
    excluded = {(bet.key, bet.size) for bet in evidence.excluded()}
    assert {("ratio", 1.05), ("temperature", 0.95), ("target", 0.03), ("one u", 0.95), ("kept", 0.03)} <= excluded


def test_faults_that_a_run_finds_are_excluded_by_it() -> None:
    """A promise holds with a probability of 99.9 %: of 213, more than two fail in 1 of 740 choices of seeds."""
    promised = kept = 0
    for seed in range(1, 5):
        evidence = run(correct("drafts", seed=seed, limits="none"))
        found, excluded = ({(bet.key, bet.size) for bet in bets} for bets in (evidence.found(), evidence.excluded()))
        promised += len(found)
        kept += len(found & excluded)
    assert promised > 200
    assert promised - kept <= 2


@pytest.mark.parametrize("test", list(TESTS))
def test_a_correct_engine_passes(test: str) -> None:
    for seed in range(2):
        assert not run(correct(test, seed, rows=seed)).failed


@pytest.mark.parametrize("test", ["drafts", "block", "needles"])
def test_a_test_ends_once_it_has_excluded_what_it_promises(test: str) -> None:
    simulation = correct(test, seed=1, limits="none")
    evidence = run(simulation)
    assert evidence.excludes(simulation.effects)
    assert evidence.count < 0.8 * simulation.cap


@pytest.mark.parametrize("certain", [False, True])
@pytest.mark.parametrize("limits", LIMITS)
def test_promised_effects_are_bets_of_the_test(limits: str, certain: bool) -> None:
    _source, exact = row_sets(0, limits, vocab=64, certain=certain)
    assert set(of_steps(limits, certain=certain)) <= set(GivenDrafts(exact, 1.0, 0).evidence.bets)


def test_evidence_against_a_correct_sampler_stays_small() -> None:
    """60 runs: evidence of 100 has a probability of at most 1 % in each, so five times in 60 one of 1e-5."""
    source, exact = row_sets(0, "none")
    sampler = SimulatedSampler(source)
    large = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        model = GivenDrafts(exact, 1.0, seed)
        for _ in range(4):
            sets, lengths = source.choose(rng, 64)
            model.add(sampler(rng, sets, lengths, source.draw(rng, sets)))
        large += model.evidence.log_e >= math.log(100)
    assert large < 5


@pytest.mark.parametrize(("count", "words"), [(700, "after 700 of 1,000 requests:"), (1046, "after 1,046 requests:")])
def test_a_sample_beyond_the_largest_has_no_total(count: int, words: str) -> None:
    """The last step may end beyond it: "1,046 of 1,000" says nothing."""
    best = SimpleNamespace(label="q of the row before", log10=12.0, issues=())
    evidence: Any = SimpleNamespace(
        count=count, unit="requests", limit=20.0, impossible=["a draft"], explanations=lambda: [best]
    )
    assert f"an impossible outcome {words}" in failure_message(evidence, 1000, run_seed=1)

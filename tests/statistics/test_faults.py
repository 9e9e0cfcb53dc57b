"""Planted faults are found at the sizes that the suites state, and named; a correct sampler is left alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from faulty_samplers import FAULTS, WEIGHT, SimulatedSampler, rows_of, run

from verispec.judge.statistics.block_rule import BlockRule
from verispec.judge.statistics.given_drafts import GivenDrafts
from verispec.judge.statistics.trial import failure_message


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_fault_is_found_and_named(fault: str) -> None:
    evidence, cap = run(fault, seed=1)
    best = evidence.best_bets()[0][0]
    assert evidence.failed, f"{fault}: log E {evidence.log_e:.1f} after {evidence.count}"
    assert best.key in FAULTS[fault].names or not FAULTS[fault].names
    message = failure_message(evidence, cap, run_seed=1)
    assert "--seed 1 repeats it" in message
    assert best.fault.name.partition("{")[0] in message


def test_an_excluded_token_fails_at_once() -> None:
    evidence, _ = run("excluded", seed=1)
    assert evidence.log_e == math.inf
    assert "probability 0" in evidence.impossible[0]


def test_a_correct_sampler_passes_and_excludes_faults() -> None:
    evidence, _ = run("", seed=1)
    assert not evidence.failed
    excluded = {(bet.key, bet.size) for bet in evidence.excluded()}
    assert {("ratio", 1.05), ("temperature", 0.9), ("target", 0.03), ("one u", 0.95), ("kept", 0.03)} <= excluded
    assert {(bet.key, bet.size) for bet in evidence.found()} <= excluded


def test_evidence_against_a_correct_sampler_stays_small() -> None:
    """60 runs: evidence of 100 has a probability of at most 1 % in each, so five times in 60 one of 1e-5."""
    source, exact = rows_of("none")
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


def test_a_block_that_is_verified_token_by_token_is_named() -> None:
    source, exact = rows_of("none")
    rng = np.random.default_rng(3)
    model = BlockRule(exact, WEIGHT, 3)
    sampler = SimulatedSampler(source)
    while not model.evidence.failed and model.evidence.count < 10_000:
        sets, lengths = source.choose(rng, 300)
        model.add(sampler(rng, sets, lengths, source.draw(rng, sets)))
    assert model.evidence.failed
    assert model.evidence.best_bets()[0][0].key in ("token rule", "token residual")

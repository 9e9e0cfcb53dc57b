"""Synthetic mode of the end-to-end sampler: accept all, reject all, and the configured rate of every position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from verispec.cases import case
from verispec.cases.sampling import random_sampler_batch
from verispec.engines import Engine
from verispec.judge import Failure, Kind, Mismatch, SamplerUnderTest, offered
from verispec.judge.statistics.rates import Rates
from verispec.judge.statistics.trial import Trial

REACH = "rejection_sample_method=synthetic is an accepted configuration"
BATCHES = ["all greedy", "all sampled", "mixed"]
RATES = [0.8, 0.5, 0.2]
"""Unconditional rates: the probability that a position and all before it are accepted."""
FAMILIES = [None, "request_state"]
"""The packed family, which engines use by default, and the slot-indexed family."""


@pytest.fixture
def sampler(engine: Engine, seed: int, family: str | None) -> SamplerUnderTest:
    torch.manual_seed(seed)
    return SamplerUnderTest(offered(engine.sampler() if family is None else engine.sampler(family)))


def temperatures(batch: str, requests: int) -> Any:
    return {"all greedy": 0.0, "all sampled": 0.8, "mixed": np.where(np.arange(requests) % 2, 0.0, 0.8)}[batch]


@case("WS-13", family=FAMILIES, rate=[0, 1], batch=BATCHES, draft=["present", "absent"], reach=REACH)
def test_certain_rates(sampler: SamplerUnderTest, seed: int, rate: int, batch: str, draft: str) -> None:
    rng = np.random.default_rng(seed)
    counts = (3, 0, 2, 3, 1)
    heat = temperatures(batch, len(counts))
    step = random_sampler_batch(
        rng, counts, temperature=heat, draft=draft == "present", synthetic_rates=[float(rate)] * 3
    )
    for b, tokens in enumerate(sampler(step)):
        expected = step.draft_token_ids[b] if rate else []
        if len(tokens) != len(expected) + 1 or tokens[: len(expected)] != list(expected):
            message = f"request {b} with drafts {step.draft_token_ids[b]} and rates of {rate} emitted {tokens}"
            raise Mismatch(Failure(Kind.VALUE, message))


@case("WS-12", family=FAMILIES, mode="law", batch=BATCHES, reach=REACH)
def test_each_position_is_accepted_at_its_rate(sampler: SamplerUnderTest, trial: Trial, batch: str) -> None:
    """Given all before it, position j is accepted at rate j over rate j - 1; 20,000 requests find factors of 1.05."""
    rng = np.random.default_rng(trial.seed)
    conditional = np.array(RATES) / np.array([1.0, *RATES[:-1]])
    rates = Rates(trial.weight, trial.seed, "decisions")

    def step() -> None:
        heat = temperatures(batch, 2000)
        requests = random_sampler_batch(rng, [3] * 2000, 8, temperature=heat, synthetic_rates=RATES)
        accepted = np.array([len(tokens) - 1 for tokens in sampler(requests)])
        for position, rate in enumerate(conditional):
            reached = accepted >= position
            rates.add(np.full(int(reached.sum()), rate), accepted[reached] > position)

    trial.collect(rates.evidence, trial.size(35_000), step)

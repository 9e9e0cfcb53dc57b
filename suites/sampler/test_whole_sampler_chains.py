"""End-to-end samplers whose requests have up to forty drafts, most of which are accepted (contract WS)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from verispec.cases import case
from verispec.cases.sampling import random_sampler_batch
from verispec.engines import Engine
from verispec.engines.protocol.sampling import SamplerBatch
from verispec.judge import Inconclusive, SamplerUnderTest, offered
from verispec.suites.sampler.test_whole_sampler import by_rule, equal

COUNTS = (9, 0, 6, 33, 40, 5, 8)
ROUNDS = 10


@pytest.fixture
def sampler(engine: Engine, seed: int, family: str | None) -> SamplerUnderTest:
    torch.manual_seed(seed)
    return SamplerUnderTest(offered(engine.sampler() if family is None else engine.sampler(family)))


@case("WS-9", family=[None, "request_state"], draft=["present", "absent"], check="long", reach="a request with a seed")
def test_tokens_of_long_chains_follow_from_the_random_numbers(sampler: SamplerUnderTest, seed: int, draft: str) -> None:
    """Each draft of up to forty is accepted with a chance of 0.93, by a number of its own."""
    rng = np.random.default_rng(seed)
    late = 0
    for n in range(ROUNDS):
        step = likely_drafts(rng, draft == "present", [1000 * n + b for b in range(len(COUNTS))])
        trace = sampler.trace(step)
        for b, draws in enumerate(trace.draws):
            if draws is None or not step.counts[b]:
                continue
            ruled = by_rule(step, b, draws.uniform.numpy(), draws.noise.double().numpy())
            if ruled is None:
                continue
            expected, rejected = ruled
            equal(expected, trace.tokens[b] if rejected else trace.tokens[b][:-1], f"request {b} of round {n}")
            late += max(len(expected) - 4, 0)
    if late < ROUNDS:
        raise Inconclusive(f"only {late} decisions after the fourth draft have random numbers that the engine reports")


def likely_drafts(rng: np.random.Generator, has_probs: bool, seeds: list[int]) -> SamplerBatch:
    """Return a batch whose drafts have a probability of 0.93 each, or of p / q = 0.93 with draft probabilities."""
    step = random_sampler_batch(rng, COUNTS, draft=has_probs, seeds=seeds)
    step.logits.clamp_(max=4.0)
    row = 0
    for b, ids in enumerate(step.draft_token_ids):
        for j, token in enumerate(ids):
            own = step.logits[row + b + j]
            own[token] = float("-inf")
            own[token] = own.logsumexp(0) + float(np.log(0.93 / 0.07))
            if step.draft_probs is not None:
                step.draft_probs[row + j] = 0.0
                step.draft_probs[row + j, token] = 1.0
        row += len(ids)
    return step

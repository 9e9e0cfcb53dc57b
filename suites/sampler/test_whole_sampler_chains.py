"""End-to-end samplers whose requests have up to forty drafts, most of which are accepted (contract WS).

Greedy chains and an exact top-k also test engines without seeds of requests and without random numbers to report.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from verispec.cases import case
from verispec.cases.sampling import greedy_tokens, random_sampler_batch, rows_of
from verispec.engines import Engine
from verispec.engines.protocol.sampling import SamplerBatch
from verispec.judge import Failure, Inconclusive, Kind, Mismatch, SamplerUnderTest, sampler_of
from verispec.suites.sampler._noise_rule import by_rule
from verispec.suites.sampler._streams import require_told, untold
from verispec.suites.sampler.test_whole_sampler import FAMILIES, REACH, equal, separate

COUNTS = (9, 0, 6, 33, 40, 5, 8)
ROUNDS = 10
REQUESTS = 128


@pytest.fixture
def sampler(engine: Engine, seed: int, family: str | None) -> SamplerUnderTest:
    torch.manual_seed(seed)
    return SamplerUnderTest(sampler_of(engine, family))


@case("WS-9", family=[None, "request_state"], draft=["present", "absent"], check="long", reach="a request with a seed")
def test_tokens_of_long_chains_follow_from_the_random_numbers(sampler: SamplerUnderTest, seed: int, draft: str) -> None:
    """Each draft of up to forty is accepted with a chance of 0.93, by a number of its own."""
    rng = np.random.default_rng(seed)
    late = judged = missing = 0
    for n in range(ROUNDS):
        step = likely_drafts(rng, draft == "present", [1000 * n + b for b in range(len(COUNTS))])
        trace = sampler.trace(step)
        missing += untold(step, trace)
        for b, draws in enumerate(trace.draws):
            if draws is None or not step.counts[b]:
                continue
            ruled = by_rule(step, b, draws.uniform.numpy(), draws.noise.double().numpy())
            if ruled is None:
                continue
            expected, rejected = ruled
            equal(expected, trace.tokens[b] if rejected else trace.tokens[b][:-1], f"request {b} of round {n}")
            late += max(len(expected) - 4, 0)
            judged += 1
    if late < ROUNDS:
        raise Inconclusive(f"only {late} decisions after the fourth draft have random numbers that the engine reports")
    require_told(missing, judged)


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


@case("WS-1", family=FAMILIES, check="long", reach=REACH)
def test_long_chains_of_greedy_requests(sampler: SamplerUnderTest, seed: int) -> None:
    """All drafts of a request are right but one of the last five, or none is wrong."""
    rng = np.random.default_rng(seed)
    for n in range(6):
        step = random_sampler_batch(rng, COUNTS, temperature=0.0, draft=False)
        separate(step)
        for b, ids in enumerate(step.draft_token_ids):
            ids[:] = step.logits[rows_of(step, b)].argmax(dim=1)[: len(ids)].tolist()  # type: ignore[index]
            if n < len(ids) and n < 5:
                ids[len(ids) - 1 - n] = (ids[len(ids) - 1 - n] + 1) % step.vocab_size  # type: ignore[index]
        for b, tokens in enumerate(sampler(step)):
            equal(greedy_tokens(step, b), tokens, f"greedy request {b} of {COUNTS[b]} drafts, round {n},")


@case(
    "WS-6",
    family=FAMILIES,
    limit=["top_k 2", "top_k 5"],
    vocab=[50, 4096],
    drafts=[0, 1],
    check="exact",
    reach="requests with top_k",
)
def test_top_k_is_exact(sampler: SamplerUnderTest, seed: int, limit: str, vocab: int, drafts: int) -> None:
    """Eight tokens are about as likely: 128 requests emit each of the first k, but for a chance of 2e-12, and no other.

    The draft is the last of the eight, which top-k excludes. Without drafts all are bonus tokens.
    """
    rng, k = np.random.default_rng(seed), int(limit.split()[1])
    step = random_sampler_batch(rng, [drafts] * REQUESTS, vocab, draft=False, top_k=k)
    tokens = rng.choice(vocab, 8, replace=False).tolist()
    step.logits[:] = -10.0
    for place, token in enumerate(tokens):
        step.logits[:, token] = 10.0 - place / 100
    for ids in step.draft_token_ids:
        ids[:] = tokens[-1:] * drafts  # type: ignore[index]
    seen = {emitted[0] for emitted in sampler(step)}
    if seen != set(tokens[:k]):
        message = f"top_k = {k} keeps {sorted(tokens[:k])} of {vocab} tokens; emitted were {sorted(seen)}"
        raise Mismatch(Failure(Kind.VALUE, message))


@case("WS-10", family=FAMILIES, draft=["present", "absent"], check="bonus after its draft", reach=REACH)
def test_a_bonus_token_may_be_the_last_draft(sampler: SamplerUnderTest, seed: int, draft: str) -> None:
    """All drafts are accepted, and the bonus row gives the last draft and another token one half each.

    Of 128 bonus tokens 29 to 99 are drafts, but for a chance of 2e-10: no draft is left out of the row behind it.
    """
    step = random_sampler_batch(np.random.default_rng(seed), [2] * REQUESTS, draft=draft == "present")
    step.logits.clamp_(max=4.0)
    for b, ids in enumerate(step.draft_token_ids):
        own = step.logits[rows_of(step, b)]
        own[[0, 1, 2], [*ids, ids[-1]]] = 40.0
        own[2, ids[-1] - 1] = 40.0
        if step.draft_probs is not None:
            probs = step.draft_probs[2 * b : 2 * b + 2]
            probs[:] = 0.0
            probs[[0, 1], list(ids)] = 1.0
    repeated = sum(tokens[-1] == ids[-1] for tokens, ids in zip(sampler(step), step.draft_token_ids, strict=True))
    if not 29 <= repeated <= 99:
        message = f"{repeated} of {REQUESTS} bonus tokens are their last draft, which has a probability of 0.5"
        raise Mismatch(Failure(Kind.VALUE, message))

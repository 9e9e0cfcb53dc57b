"""Synthetic mode of the end-to-end sampler: accept all, reject all, and the configured rate of every position."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from verispec.cases import case
from verispec.cases.sampling import random_sampler_batch, rows_of, target_distribution
from verispec.engines import Engine, UnsupportedCall
from verispec.engines.protocol.sampling import Draws, SamplerBatch, Trace
from verispec.judge import Failure, Inconclusive, Kind, Mismatch, SamplerUnderTest, sampler_of
from verispec.judge.statistics import binomial_tail
from verispec.judge.statistics.rates import Rates
from verispec.judge.statistics.trial import Trial
from verispec.run.record import FAULT

REACH = "rejection_sample_method=synthetic is an accepted configuration"
BATCHES = ["all greedy", "all sampled", "mixed"]
RATES = [0.8, 0.5, 0.2]
"""Unconditional rates: the probability that a position and all before it are accepted."""
FAMILIES = [None, "request_state"]
"""The packed family, which engines use by default, and the slot-indexed family."""


@pytest.fixture
def sampler(engine: Engine, seed: int, family: str | None) -> SamplerUnderTest:
    torch.manual_seed(seed)
    return SamplerUnderTest(sampler_of(engine, family))


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


@case("WS-13", family=FAMILIES, accepted=[*range(1, 9)], batch=BATCHES, reach=REACH)
def test_certain_rates_that_end(sampler: SamplerUnderTest, seed: int, accepted: int, batch: str) -> None:
    """Of up to nine drafts the first ones are always accepted, and the others never.

    In the second step no request has as many drafts as there are rates.
    """
    rates = [1.0] * accepted + [0.0] * (9 - accepted)
    for counts in ((9, 0, 4, 9, 1, 6), (3, 0, 4, 2, 1, 4)):
        heat = temperatures(batch, len(counts))
        step = random_sampler_batch(np.random.default_rng(seed), counts, temperature=heat, synthetic_rates=rates)
        for b, tokens in enumerate(sampler(step)):
            expected = list(step.draft_token_ids[b])[:accepted]
            if tokens[:-1] != expected:
                message = f"request {b} with drafts {step.draft_token_ids[b]} and rates {rates} emitted {tokens}"
                raise Mismatch(Failure(Kind.VALUE, message))


@case("WS-13", family=FAMILIES, rate=[0, 1], batch="mixed", check="many", reach=REACH)
def test_certain_rates_decide_every_draft(sampler: SamplerUnderTest, seed: int, rate: int) -> None:
    """A rate of 0.001 or 0.999 instead decides all of 6,000 drafts rightly with a chance of 0.3 %."""
    check_certain(sampler, seed, rate, [3] * 2000 if rate else [1] * 6000)


@case("WS-13", family=FAMILIES, rate=1, batch="mixed", check="many long chains", reach=REACH)
def test_a_rate_of_one_keeps_long_chains(sampler: SamplerUnderTest, seed: int) -> None:
    """A rate of 0.9999 instead, as a bound below 1 may leave, keeps all of 64,000 drafts with a chance of 0.2 %."""
    check_certain(sampler, seed, 1, [32] * 2000)


def check_certain(sampler: SamplerUnderTest, seed: int, rate: int, counts: list[int]) -> None:
    step = random_sampler_batch(
        np.random.default_rng(seed),
        counts,
        8,
        temperature=temperatures("mixed", len(counts)),
        draft=False,
        synthetic_rates=[float(rate)] * max(3, *counts),
    )
    wrong = [b for b, tokens in enumerate(sampler(step)) if len(tokens) != rate * counts[b] + 1]
    if wrong:
        message = f"{len(wrong)} of {len(counts)} requests do not keep to rates of {rate}, request {wrong[0]} first"
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


CALL = 1200
"""Requests of a call. A share of equal ones at one of 3,600 distances has a chance of `UNLIKELY`."""
EQUAL = sum((more - less) ** 2 for more, less in pairwise((1.0, *RATES, 0.0)))
UNLIKELY = 1e-13


@case("WS-26", family=FAMILIES, batch=BATCHES, check="neighbours", reach=REACH)
def test_no_request_has_the_numbers_of_another(sampler: SamplerUnderTest, seed: int, batch: str) -> None:
    """Requests without a seed, at one distance in two calls, accept as many of three drafts by chance alone: 26 %.

    Pairs of requests that share their numbers leave every rate as it is.
    """
    rng = np.random.default_rng(seed)
    accepted = []
    for _ in range(2):
        step = random_sampler_batch(
            rng, [3] * CALL, 8, temperature=temperatures(batch, CALL), draft=False, synthetic_rates=RATES
        )
        accepted += [len(tokens) - 1 for tokens in sampler(step)]
    told, places = np.array(accepted), np.arange(2 * CALL)
    for distance in range(1, CALL + 1):
        for start in (0, distance):  # Pairs without a common request, from the first one on, then those between.
            first = places[(places - start) // distance % 2 == 0]
            first = first[(first >= start) & (first < len(told) - distance)]
            equal = int((told[first] == told[first + distance]).sum())
            if equal > EQUAL * len(first) and binomial_tail(equal, len(first), EQUAL) < UNLIKELY:
                message = f"{equal} of {len(first)} requests accept as many drafts as the request {distance} places on"
                raise Mismatch(Failure(Kind.LAW, message))


COUNTS = (3, 0, 2, 5, 1, 0, 4)
FALLING = [0.9, 0.7, 0.5, 0.3, 0.15]
MARGIN = 1e-4
"""Relative distance of two scores, or of a number and its rate, below which a float32 engine may decide otherwise."""
LIMITS: tuple[dict[str, float], ...] = (
    {},
    {"top_k": 2},
    {"top_p": 0.5},
    {"min_p": 0.4},
    {"top_k": 6, "top_p": 0.5},
    {"top_k": 3, "min_p": 0.05},
    {"top_p": 0.5, "min_p": 0.05},
    {"top_k": 6, "top_p": 0.6, "min_p": 0.05},
)


@case("WS-26", family=FAMILIES, batch=BATCHES, draft=["present", "absent"], reach=REACH)
def test_tokens_follow_from_rates_and_random_numbers(
    sampler: SamplerUnderTest, seed: int, batch: str, draft: str, rates: str = ""
) -> None:
    """24 batches: accepted drafts by their numbers, then the token of the row behind them.

    Every fifth batch is one request. Limits of seven batches in eight cut the row, one or several at once, and change
    no rate.
    """
    schedule = [float(rate) for rate in rates.split()] or FALLING
    rng = np.random.default_rng(seed)
    judged = 0
    for n in range(24):
        limits = LIMITS[n % len(LIMITS)]
        counts = COUNTS if n % 5 else (5,)
        step = random_sampler_batch(
            rng,
            counts,
            temperature=temperatures(batch, len(counts)),
            draft=draft == "present",
            seeds=[100 * n + b for b in range(len(counts))],
            synthetic_rates=schedule,
            **{name: torch.full((len(counts),), value) for name, value in limits.items()},
        )
        try:
            trace = sampler.trace(step)
        except UnsupportedCall:
            if not limits:
                raise
            continue  # vLLM refuses min-p beside drafts; the other batches decide.
        for b, (tokens, draws) in enumerate(zip(trace.tokens, trace.draws, strict=True)):
            if float(step.temperature[b]) == 0:
                check_last(tokens, {greedy_token(step, b, len(tokens) - 1)}, f"greedy request {b}")
            elif draws is not None:
                try:
                    judged += check_numbers(step, b, tokens, draws, schedule)
                except Mismatch as mismatch:
                    if not (fault := misread(step, trace, schedule)):
                        raise
                    message = f"{mismatch.failure.message}; the tokens of all requests are as if {fault}"
                    raise Mismatch(replace(mismatch.failure, message=message, details={FAULT: fault})) from mismatch
    if batch != "all greedy" and judged < 10:
        raise Inconclusive(f"only {judged} requests reported their random numbers and had no near tie")


@case(
    "WS-26", family=FAMILIES, batch=["all sampled", "mixed"], rates=["1 0.8 0.5 0.5 0.2", "0.9 0.4 0 0 0"], reach=REACH
)
def test_tokens_follow_from_rates_of_other_shapes(sampler: SamplerUnderTest, seed: int, batch: str, rates: str) -> None:
    """Rates that begin with 1, stay as they are and end with 0: a conversion may pass over each of these."""
    test_tokens_follow_from_rates_and_random_numbers(sampler, seed, batch, "absent", rates)


@case("WS-26", family=FAMILIES, batch="all sampled", check="many", reach=REACH)
def test_rates_are_as_exact_as_the_numbers(sampler: SamplerUnderTest, seed: int) -> None:
    """2,000 requests have six numbers, on average, between a rate and its bfloat16: none with a chance of 0.2 %."""
    step = random_sampler_batch(
        np.random.default_rng(seed), [5] * 2000, 8, draft=False, seeds=list(range(2000)), synthetic_rates=FALLING
    )
    trace = sampler.trace(step)
    told = [(len(tokens) - 1, draws) for tokens, draws in zip(trace.tokens, trace.draws, strict=True) if draws]
    if len(told) < 1000:
        raise Inconclusive(f"only {len(told)} of 2,000 requests reported their random numbers")
    accepted, numbers = np.array([count for count, _ in told]), np.array([draws.uniform.numpy() for _, draws in told])
    rates = conditional(FALLING)
    is_near = (np.abs(numbers - rates) <= MARGIN * rates).any(axis=1)
    expected = np.append(numbers >= rates, np.ones((len(told), 1), dtype=bool), axis=1).argmax(axis=1)
    wrong = np.flatnonzero((accepted != expected) & ~is_near)
    if len(wrong):
        message = f"{len(wrong)} requests accepted other drafts than their numbers and rates {FALLING} do"
        raise Mismatch(Failure(Kind.VALUE, message))


def greedy_token(step: SamplerBatch, b: int, row: int) -> int:
    return int(step.logits[rows_of(step, b)][row].argmax())


def conditional(rates: Sequence[float]) -> Any:
    """Return the conditional rates of unconditional ones, 0 after a rate of 0."""
    before = np.array([1.0, *rates[:-1]])
    return np.divide(rates, before, out=np.zeros(len(rates)), where=before > 0)


def check_numbers(step: SamplerBatch, b: int, tokens: list[int], draws: Draws, schedule: Sequence[float]) -> bool:
    """Compare the tokens of a sampled request with its numbers; returns False at a near tie.

    After a rejection packed samplers emit the recovered token, slot-indexed ones a token of the target.
    """
    numbers = draws.uniform.numpy()
    rates = conditional(schedule)[: len(numbers)]
    if (np.abs(numbers - rates) <= MARGIN * rates).any():
        return False
    accepted = int(np.append(numbers >= rates, True).argmax())
    drafts = list(step.draft_token_ids[b])
    if tokens[:-1] != drafts[:accepted]:
        message = f"request {b} accepted {tokens[:-1]} of {drafts}; its numbers and rates accept {accepted}"
        raise Mismatch(Failure(Kind.VALUE, message))
    noise = draws.bonus_noise if accepted == len(drafts) else draws.noise
    if noise is None:
        return True
    p = target_distribution(step, b, accepted)
    for name in ("top_p", "min_p"):  # Rounding may move their cut.
        limit = getattr(step, name)
        if limit is not None:
            moved = (replace(step, **{name: limit * factor}) for factor in (1 - MARGIN, 1 + MARGIN))
            fewer, more = (target_distribution(other, b, accepted) > 0 for other in moved)
            if (fewer != more).any():
                return False
    laws = [p]
    if accepted < len(drafts):
        row = sum(step.counts[:b]) + accepted
        certain = np.eye(len(p))[drafts[accepted]]
        q = certain if step.draft_probs is None else step.draft_probs[row].double().numpy()
        laws.append(np.maximum(p - q, 0.0))
    winners = {int(token) for law in laws for token in leaders(law / noise.double().numpy())}
    check_last(tokens, winners, f"sampled request {b} after {accepted} accepted drafts")
    return True


HEATS = {"the temperature counted twice": 2, "the temperature did not count": 0}
"""Mistakes in words, with the power of the temperature that they divide by."""
LEFT_OUT = ("top_k", "top_p", "min_p")
"""Limits that a mistake may leave out."""


def misread(step: SamplerBatch, trace: Trace, schedule: Sequence[float]) -> str:
    """Return the mistakes that give every sampled request its tokens: those of `HEATS`, or a limit left out.

    A limit without which a step is no other step explains nothing.
    """
    sampled = [(b, draws) for b, draws in enumerate(trace.draws) if draws is not None and step.temperature[b] > 0]
    others = {
        fault: replace(step, temperature=torch.where(step.temperature > 0, step.temperature**power, 0.0))
        for fault, power in HEATS.items()
    }
    left_out: list[dict[str, Any]] = [{name: None} for name in LEFT_OUT if getattr(step, name) is not None]
    others |= {f"{next(iter(limit))} did not count": replace(step, **limit) for limit in left_out}
    faults = []
    for fault, other in others.items():
        with suppress(Mismatch):
            judged = [check_numbers(other, b, trace.tokens[b], draws, schedule) for b, draws in sampled]
            faults += [fault] * any(judged)
    return " or ".join(faults)


def leaders(scores: Any) -> Any:
    """Return the tokens whose scores are the largest, or as good as equal to it."""
    return np.flatnonzero(scores >= (1 - MARGIN) * scores.max())


def check_last(tokens: list[int], wanted: set[int], what: str) -> None:
    if tokens[-1] not in wanted:
        raise Mismatch(Failure(Kind.VALUE, f"{what} emitted {tokens[-1]} last, expected {sorted(wanted)}"))

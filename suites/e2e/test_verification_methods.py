"""Verification methods end to end: standard, block and synthetic acceptance (contract GEN)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from verispec import fixtures
from verispec.cases import case
from verispec.cases.request_parameters import distribution
from verispec.engines.protocol.generation import (
    GenerationRequest,
    GenerationResult,
    SpeculationMetrics,
    SpeculativeStep,
)
from verispec.judge import Inconclusive, Mismatch
from verispec.judge.statistics import assert_distribution, fits
from verispec.judge.statistics.supposed import Sample, assert_law
from verispec.run.record import AS_IF, FAULT
from verispec.suites.e2e._acceptance import accepted_lengths
from verispec.suites.e2e._counter_rng import Definition
from verispec.suites.e2e._parameters import Setting, TokenShare, check_distribution, check_tokens
from verispec.suites.e2e._reference_model import Array, continuations, greedy_text, reference_model
from verispec.suites.e2e._setups import (
    ARGMAX,
    MANY,
    Load,
    counted,
    first_verification,
    require,
    sampled_in_parts,
    with_steps,
)
from verispec.suites.e2e._tiny import VOCAB

TARGET = fixtures.model("target")
DRAWN = "draft_model k=3"
SEQUENCES = 3000
SAMPLERS = [None, "request_state"]


@case(
    "GEN-25",
    target="tiny",
    method=["standard", "block"],
    sampler=SAMPLERS,
    draft=[DRAWN, ARGMAX],
    limits=["none", "top-k"],
    reach="rejection_sample_method is an accepted option",
    p_values=1,
)
def test_drafts_are_accepted_as_the_method_says(
    load: Load, tiny: dict[str, Path], seed: int, method: str, sampler: str | None, draft: str, limits: str
) -> None:
    """First token and accepted drafts of the first verification, 32 outcomes with exact probabilities.

    At 3,000 requests block verification that is silently standard is found with a chance of 0.999 at drawn drafts:
    1.21 drafts are accepted on average instead of 1.07. With top-k the chance is 0.55.

    Whether a draft was accepted says nothing about the next step: a number that served to reject draft j, and is used
    again as the noise of token j, makes this token come too often.
    """
    request = GenerationRequest(
        (1, 5, 2), max_tokens=6, ignore_eos=True, temperature=2.0, top_k=6 if limits == "top-k" else 0
    )
    asked = [replace(request, seed=seed % 2**31 + n) for n in range(SEQUENCES)]
    generator = load(
        draft,
        target=tiny["target"],
        drafter=tiny["draft"],
        sampler=sampler or "flat",
        rejection_sample_method=method,
        max_num_seqs=MANY,
    )
    with_steps(generator.generate(asked[:1]))
    laws = distribution(continuations(tiny["target"], request.prompt_token_ids, 3), request)
    exact = accepted_lengths(tiny["target"], tiny["draft"], request, method, 3, argmax=draft == ARGMAX).ravel()

    def tables(results: Sequence[GenerationResult]) -> tuple[Array, TokenShare]:
        """Return the counts of first tokens and accepted drafts, and of tokens behind a rejection."""
        counts = np.zeros((VOCAB, 4), dtype=np.int64)
        after = TokenShare("steps behind the rejection of draft j begin with token j")
        for result in with_steps(results):
            step = first_verification(result, depth=3)
            counts[result.token_ids[0], step.accepted] += 1
            place = 1
            for step in result.steps[1:]:
                place += step.accepted + 1
                if place > 3:  # The laws reach no further.
                    break
                if step.accepted < step.drafted:
                    law = laws[(*result.token_ids[:place], 0)[:3]][place]
                    after.add(np.where(np.arange(VOCAB) == step.accepted, law, 0.0), result.token_ids[place])
        return counts.ravel(), after

    def fit(results: Sequence[GenerationResult], part: float) -> bool:
        counts, after = tables(results)
        return after.fits and fits(counts, exact, part)

    counts, after = tables(sampled_in_parts(generator, asked, fit))
    after.check()
    what = f"first tokens and drafts accepted after them by {method} verification"
    names = [f"token {token} with {accepted} of 3 drafts accepted" for token, accepted in np.ndindex(VOCAB, 4)]
    assert_distribution(counts.tolist(), exact, what, names)


@case(
    "GEN-26",
    target="tiny",
    sampler=SAMPLERS,
    draft=[DRAWN, ARGMAX, "ngram k=3"],
    parameter=["none", "penalties and limits", "everything", "min tokens", "min-p and top-p"],
    reach="rejection_sample_method=block is an accepted option",
    p_values=2,
)
def test_block_verification_keeps_the_distribution(
    load: Load, tiny: dict[str, Path], seed: int, sampler: str | None, draft: str, parameter: str
) -> None:
    options = {"sampler": sampler or "flat", "rejection_sample_method": "block"}
    check_distribution(load, tiny, draft, parameter, seed, **options)


RATES: dict[str, dict[str, Any]] = {
    "0.8 0.5 0.2": {"synthetic_acceptance_rates": (0.8, 0.5, 0.2)},
    "1 0.6 0": {"synthetic_acceptance_rates": (1.0, 0.6, 0.0)},
    "length 2.25": {"synthetic_acceptance_length": 2.25},
}
RESOLVED = {"0.8 0.5 0.2": (0.8, 0.5, 0.2), "1 0.6 0": (1.0, 0.6, 0.0), "length 2.25": (1.0, 0.25, 0.0)}
FEW = 100
"""Steps with fewer than K drafts below which their acceptance says nothing."""
BATCHES = ["all greedy", "all sampled", "mixed"]
BY_TARGET = "the target's tokens decided about their drafts, and not the rates"


def mixed_batch(prompts: Any, batch: str, length: int, count: int) -> list[GenerationRequest]:
    """Return short prompts that repeat, so that prompt lookup drafts.

    Every second request of a mixed batch is greedy.
    """
    heat = {"all greedy": (0.0,), "all sampled": (0.9,), "mixed": (0.9, 0.0)}[batch]
    return [
        GenerationRequest(
            (*prompts[n % len(prompts)][:6], *prompts[n % len(prompts)][:6]),
            max_tokens=length,
            ignore_eos=True,
            temperature=heat[n % len(heat)],
            seed=n,
        )
        for n in range(count)
    ]


@case(
    "GEN-27",
    target="tiny",
    rates=list(RATES),
    batch=BATCHES,
    sampler=SAMPLERS,
    draft=["ngram k=3", DRAWN],
    reach="rejection_sample_method=synthetic is an accepted option",
    p_values=2,
)
def test_drafts_are_accepted_at_the_configured_rates(
    load: Load, tiny: dict[str, Path], rates: str, batch: str, sampler: str | None, draft: str
) -> None:
    """Pairs of neighbouring steps with K drafts: 16 outcomes, with the product of the configured probabilities.

    Steps with fewer drafts, near the end of a request or where prompt lookup has fewer, keep to the first rates.
    """
    asked = mixed_batch([(1, 5, 2), (3, 2, 7), (6, 6, 4), (2, 3, 1)], batch, 48, 96)
    generator = load(
        draft,
        target=tiny["target"],
        drafter=tiny["draft"] if draft == DRAWN else None,
        sampler=sampler or "flat",
        rejection_sample_method="synthetic",
        **RATES[rates],
    )
    results, metrics = counted(generator, asked)
    steps = [[step for step in result.steps if step.drafted] for result in with_steps(results)]
    check_counters(metrics, [step for own in steps for step in own])
    try:
        check_rates(steps, RESOLVED[rates], [request.greedy for request in asked])
    except Mismatch as mismatch:
        raise _verified_by_target(mismatch, tiny["target"], asked, results) from None


def _verified_by_target(
    mismatch: Mismatch, target: Path, asked: Sequence[GenerationRequest], results: Sequence[GenerationResult]
) -> Mismatch:
    """Return the failure of rates with the reason, if all greedy requests have the target's own texts."""
    texts = [(request.prompt_token_ids, own) for request, own in zip(asked, results, strict=True) if request.greedy]
    try:
        for prompt, result in texts:
            reference_model(target).judge_greedy(prompt, result.token_ids, "")
    except Mismatch:
        return mismatch
    if not texts:
        return mismatch
    message = f"{mismatch.failure.message}; greedy requests have the target's own texts, {AS_IF}{BY_TARGET}"
    return Mismatch(replace(mismatch.failure, message=message, details={**mismatch.failure.details, FAULT: BY_TARGET}))


@case(
    "GEN-27",
    target="tiny",
    sampler=SAMPLERS,
    draft=DRAWN,
    check="drafts",
    reach="rejection_sample_method=synthetic is an accepted option",
    p_values=1,
)
def test_rates_do_not_depend_on_the_draft(load: Load, tiny: dict[str, Path], seed: int, sampler: str | None) -> None:
    """Second tokens that were accepted as drafts have the drafter's distribution, summed over the first tokens.

    Half of 3,000 are. A number that serves to draft one of eight tokens too decides about most drafts of that token.
    """
    request = GenerationRequest((1, 5, 2), max_tokens=6, ignore_eos=True, temperature=2.0)
    generator = load(
        DRAWN,
        target=tiny["target"],
        drafter=tiny["draft"],
        sampler=sampler or "flat",
        rejection_sample_method="synthetic",
        synthetic_acceptance_rates=(0.5,) * 3,
        max_num_seqs=MANY,
    )
    with_steps(generator.generate([request]))
    asked = [replace(request, seed=seed % 2**31 + n) for n in range(SEQUENCES)]
    first = reference_model(tiny["target"]).distributions(request, (0,))[0]
    drafts = [reference_model(tiny["draft"]).distributions(request, (token, 0))[1] for token in range(VOCAB)]
    exact = first @ np.stack(drafts)

    def counts_of(results: Sequence[GenerationResult]) -> Array:
        drafted = [result.token_ids[1] for result in with_steps(results) if first_verification(result).accepted]
        return np.bincount(drafted, minlength=VOCAB)

    results = sampled_in_parts(generator, asked, lambda results, part: fits(counts_of(results), exact, part))
    names = [f"token {token}" for token in range(VOCAB)]
    assert_distribution(counts_of(results).tolist(), exact, "second tokens that were accepted as drafts", names)


def check_counters(metrics: SpeculationMetrics, steps: Sequence[SpeculativeStep]) -> None:
    """Check that the counters are the sums over all verifications."""
    positions = tuple(
        sum(step.accepted > place for step in steps) for place in range(len(metrics.accepted_per_position))
    )
    expected = SpeculationMetrics(
        len(steps), sum(step.drafted for step in steps), sum(step.accepted for step in steps), positions
    )
    require(metrics == expected, f"the metrics are {metrics}, the steps add up to {expected}")


def pairs_law(rates: Sequence[float]) -> Array:
    """Return the probabilities [(K + 1) * (K + 1)] of the accepted drafts of two steps, for unconditional rates."""
    lengths = -np.diff([1.0, *rates, 0.0])
    return np.outer(lengths, lengths).ravel()


def mistaken_rates(rates: Sequence[float]) -> dict[str, tuple[Array, Array]]:
    """Return the laws of two steps of sampled and of greedy requests, by the mistake in words that gives them."""
    right = pairs_law(rates)
    both = {
        "the rates were those behind accepted drafts": pairs_law(np.cumprod(rates).tolist()),
        "every draft had the first rate": pairs_law((rates[0] ** np.arange(1, len(rates) + 1)).tolist()),
        "every position had the mean of the rates": pairs_law([sum(rates) / len(rates)] * len(rates)),
        "a second step accepted what the first one did": np.diag(-np.diff([1.0, *rates, 0.0])).ravel(),
    }
    laws = {told: (law, law) for told, law in both.items()}
    for told, law in (
        ("accepted every draft with a rate above 0", pairs_law([float(rate > 0) for rate in rates])),
        ("accepted no draft", pairs_law([0.0] * len(rates))),
    ):
        laws[f"sampled requests {told}"], laws[f"greedy requests {told}"] = (law, right), (right, law)
    return laws


def check_rates(steps: Sequence[Sequence[SpeculativeStep]], rates: Sequence[float], are_greedy: Sequence[bool]) -> None:
    """Check that accepted counts of neighbouring steps have the product of the rates' probabilities."""
    depth = len(rates)
    pairs = np.zeros((2, depth + 1, depth + 1), dtype=np.int64)
    for own, is_greedy in zip(steps, are_greedy, strict=True):
        full = [step.accepted for step in own if step.drafted == depth]
        for first, second in zip(full[::2], full[1::2], strict=False):
            pairs[int(is_greedy), first, second] += 1
    if pairs.sum() < 200:
        raise Inconclusive(f"only {pairs.sum()} pairs of steps have {depth} drafts")
    shares = pairs.sum(axis=(1, 2)) / pairs.sum()
    names = [
        f"{first} drafts of a {('sampled', 'greedy')[kind]} request accepted, then {second},"
        for kind, first, second in np.ndindex(pairs.shape)
    ]

    def law_of(sampled: Array, greedy: Array) -> Array:
        return np.concatenate([shares[0] * sampled, shares[1] * greedy])

    sample = Sample(
        pairs.ravel().tolist(),
        law_of(pairs_law(rates), pairs_law(rates)),
        lambda: {told: law_of(*laws) for told, laws in mistaken_rates(rates).items()},
    )
    assert_law(sample, "drafts accepted in two steps", names)
    short = [step for own in steps for step in own if step.drafted < depth]
    if len(short) >= FEW:
        accepted = sum(step.accepted > 0 for step in short)
        counts, chances = [len(short) - accepted, accepted], [1 - rates[0], rates[0]]
        assert_distribution(counts, chances, "first of fewer drafts accepted", ["a rejected one", "an accepted one"])


@case(
    "GEN-28",
    rate=[0, 1],
    batch=BATCHES,
    sampler=SAMPLERS,
    draft=["ngram k=3", DRAWN, "eagle3 k=3"],
    reach="rejection_sample_method=synthetic is an accepted option",
)
def test_certain_rates(load: Load, prompts: Any, rate: int, batch: str, sampler: str | None, draft: str) -> None:
    """Nothing or everything is accepted; without any accepted draft, greedy requests have the target's own text.

    So have requests with processors and a grammar, which follow the others of a mixed batch.
    """
    asked = mixed_batch(prompts[:8], batch, 24, 8)
    others: list[GenerationRequest] = []
    setting = Setting(draft, TARGET, None, [prompt[:16] for prompt in prompts[8:10]])
    if not rate and (batch, draft) == ("mixed", "ngram k=3"):
        others = [*setting.requests("everything"), *setting.requests("grammar and penalties")]
    generator = load(
        draft,
        sampler=sampler or "flat",
        rejection_sample_method="synthetic",
        synthetic_acceptance_rates=(float(rate),) * 3,
    )
    results, metrics = counted(generator, [*asked, *others])
    require(metrics.num_drafts > 0, "no draft was verified")
    wanted = metrics.num_draft_tokens if rate else 0
    accepted = metrics.num_accepted_tokens
    require(accepted == wanted, f"{accepted} of {metrics.num_draft_tokens} drafts accepted, expected {wanted}")
    if rate:
        return
    for n, (request, result) in enumerate(zip([*asked, *others], results, strict=True)):
        if n >= len(asked):
            check_tokens(setting.reference, request, result, f"request {n} with processors")
        elif request.greedy:
            own = greedy_text(TARGET, request.prompt_token_ids, request.max_tokens)
            reference_model(TARGET).judge_equal(request.prompt_token_ids, own, result.token_ids, f"request {n}")
        elif sampler == "request_state":
            check_plain_numbers(request, result, f"request {n}")


@case(
    "GEN-28",
    accepted=[1, 4, 5],
    sampler=SAMPLERS,
    draft="draft_model k=6",
    reach="rejection_sample_method=synthetic is an accepted option",
)
def test_certain_rates_that_end(load: Load, prompts: Any, accepted: int, sampler: str | None) -> None:
    """Of six drafts the first ones are always accepted, and the others never."""
    rates = (1.0,) * accepted + (0.0,) * (6 - accepted)
    check_certain(load, prompts, accepted, sampler=sampler or "flat", synthetic_acceptance_rates=rates)


@case(
    "GEN-28",
    rates=["length 1", "length 7"],
    draft="draft_model k=6",
    reach="rejection_sample_method=synthetic is an accepted option",
)
def test_the_lengths_at_the_ends_are_certain_rates(load: Load, prompts: Any, rates: str) -> None:
    """A mean length of 1 accepts none of six drafts, one of 7 all of them."""
    length = float(rates.removeprefix("length "))
    check_certain(load, prompts, int(length) - 1, synthetic_acceptance_length=length)


def check_certain(load: Load, prompts: Any, accepted: int, **options: Any) -> None:
    """Check that every verification of six drafts accepts the first `accepted`, and no other one."""
    generator = load("draft_model k=6", rejection_sample_method="synthetic", **options)
    results, metrics = counted(generator, mixed_batch(prompts[:4], "mixed", 32, 4))
    counts = metrics.accepted_per_position
    require(metrics.num_drafts > 0, "no draft was verified")
    if accepted:
        require(counts[accepted - 1] > 0, f"draft {accepted} is never accepted; accepted per position: {counts}")
    require(not any(counts[accepted:]), f"drafts after {accepted} are accepted; accepted per position: {counts}")
    for n, result in enumerate(results):
        for step in result.steps:
            wanted = min(step.drafted, accepted)
            require(step.accepted == wanted, f"request {n} accepted {step.accepted} of {step.drafted}, not {wanted}")


def check_plain_numbers(request: GenerationRequest, result: GenerationResult, what: str) -> None:
    """Check that each token is drawn with the numbers of plain decoding if no draft is accepted."""
    plain = replace(result, steps=(SpeculativeStep(0, 0),) * len(result.token_ids))
    Definition(request, result.token_ids, reference_model(TARGET)).judge(plain, what)

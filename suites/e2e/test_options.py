"""Options of a generator: each takes an effect that is seen from outside, or is refused (contract GEN)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from verispec import fixtures
from verispec.cases import case
from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import FinishReason, GenerationRequest, GenerationResult
from verispec.judge import Inconclusive
from verispec.judge.statistics import assert_distribution, fits
from verispec.suites.e2e._acceptance import accepted_lengths
from verispec.suites.e2e._lookup import ambiguous_prompts
from verispec.suites.e2e._reference_model import Array, reference_model
from verispec.suites.e2e._setups import (
    ARGMAX,
    MANY,
    Load,
    NotTold,
    counted,
    first_verification,
    greedy,
    require,
    sampled_in_parts,
    with_steps,
)
from verispec.suites.e2e.test_trees import probe

TARGET = fixtures.model("target")
REACH = "the option is accepted"
Prompts = list[tuple[int, ...]]
Probe = Callable[[Load, dict[str, Path], Prompts], None]


def method(load: Load, tiny: dict[str, Path], prompts: Prompts) -> None:
    for draft in ("ngram k=3", "draft_model k=3", "eagle3 k=3"):
        _, metrics = counted(load(draft), repeated(prompts))
        require(metrics.num_drafts > 0, f"method {draft.partition(' ')[0]} verified no draft")
    _, metrics = load("none").generate(repeated(prompts)), load("none").metrics()
    require(metrics.num_drafts == 0, f"method none verified {metrics.num_drafts} times")


def num_speculative_tokens(load: Load, tiny: dict[str, Path], prompts: Prompts) -> None:
    for depth in (1, 5):
        results, metrics = counted(load("draft_model k=1", num_speculative_tokens=depth), repeated(prompts))
        most = max((step.drafted for result in results for step in result.steps), default=depth)
        places = len(metrics.accepted_per_position)
        require(most == depth == places, f"K = {depth}: at most {most} drafts a step, counters for {places}")


def num_speculative_tokens_per_batch_size(load: Load, tiny: dict[str, Path], prompts: Prompts) -> None:
    schedule = ((1, 2, 3), (3, 16, 0))
    generator = load("draft_model k=3", num_speculative_tokens_per_batch_size=schedule)
    alone, many = (counted(generator, repeated(prompts)[:size])[1].num_drafts for size in (1, 4))
    require(alone > 0 and many < alone, f"{alone} verifications for one request with K = 3, {many} for four with K = 0")


def ngram_min(load: Load, tiny: dict[str, Path], prompts: Prompts) -> None:
    drafts = []
    for shortest in (4, 1):
        _, metrics = counted(
            load("ngram k=3", ngram_min=shortest, ngram_max=4), greedy([p[:20] for p in prompts[:6]], 24)
        )
        drafts.append(metrics.num_drafts)
    require(drafts[0] < drafts[1], f"{drafts[0]} verifications with ngram_min 4, {drafts[1]} with 1; expected more")


def ngram_max(load: Load, tiny: dict[str, Path], prompts: Prompts) -> None:
    """Prompts in which a single token leads to the wrong continuation, and a longer suffix to the right one."""
    ambiguous = ambiguous_prompts(tiny["target"])
    if not ambiguous:
        raise Inconclusive("no prompt has a continuation that only a longer suffix finds")
    accepted = []
    for longest in (1, 4):
        generator = load("ngram k=3", target=tiny["target"], ngram_min=1, ngram_max=longest)
        _, metrics = counted(generator, greedy(ambiguous, 5))
        accepted.append(metrics.num_accepted_tokens)
    require(accepted[0] < accepted[1], f"{accepted[0]} drafts accepted with ngram_max 1, {accepted[1]} with 4")


def draft_sample_method(load: Load, tiny: dict[str, Path], prompts: Prompts) -> None:
    for draft in ("draft_model k=3", ARGMAX):
        check_acceptance(load, tiny, draft, "standard", 600)


def rejection_sample_method_block(load: Load, tiny: dict[str, Path], prompts: Prompts) -> None:
    try:
        check_acceptance(load, tiny, "draft_model k=3", "block", 3000)
    except UnsupportedCall as refusal:
        try:
            check_acceptance(load, tiny, "draft_model k=3", "block", 3000, "request_state")
        except UnsupportedCall:
            raise refusal from None


def check_acceptance(
    load: Load, tiny: dict[str, Path], draft: str, method: str, count: int, sampler: str = "flat"
) -> None:
    """Check that the accepted drafts of the first verification have the probabilities of the given options."""
    request = GenerationRequest((1, 5, 2), max_tokens=6, ignore_eos=True, temperature=2.0)
    options: dict[str, Any] = {"sampler": sampler, "rejection_sample_method": method, "max_num_seqs": MANY}
    generator = load(draft, target=tiny["target"], drafter=tiny["draft"], **options)
    exact = accepted_lengths(tiny["target"], tiny["draft"], request, method, 3, argmax=draft == ARGMAX).sum(axis=0)

    def counts_of(results: Sequence[GenerationResult]) -> Array:
        steps = [first_verification(result, depth=3) for result in with_steps(results)]
        return np.bincount([step.accepted for step in steps], minlength=4)

    asked = [replace(request, seed=n) for n in range(count)]
    results = sampled_in_parts(generator, asked, lambda results, part: fits(counts_of(results), exact, part))
    what = f"drafts accepted with {draft}, {method} verification"
    names = [f"{accepted} of 3 drafts accepted" for accepted in range(4)]
    assert_distribution(counts_of(results).tolist(), exact, what, names)


def synthetic_acceptance_rates(load: Load, tiny: dict[str, Path], prompts: Prompts) -> None:
    check_synthetic(load, prompts, synthetic_acceptance_rates=(1.0, 0.0, 0.0))


def synthetic_acceptance_length(load: Load, tiny: dict[str, Path], prompts: Prompts) -> None:
    check_synthetic(load, prompts, synthetic_acceptance_length=2.0)


def check_synthetic(load: Load, prompts: Prompts, **rates: Any) -> None:
    """Check that exactly one draft is accepted in every verification."""
    _, metrics = counted(load("draft_model k=3", rejection_sample_method="synthetic", **rates), repeated(prompts))
    wanted = (metrics.num_drafts, 0, 0)
    got = metrics.accepted_per_position
    require(metrics.num_drafts > 0 and got == wanted, f"{rates}: {got} drafts accepted by position, expected {wanted}")


def dtype(load: Load, tiny: dict[str, Path], prompts: Prompts) -> None:
    errors = {}
    for name in ("float32", "bfloat16"):
        request = replace(greedy([prompts[0]], 8)[0], logprobs=0)
        [result] = load("draft_model k=3", dtype=name).generate([request])
        rows = reference_model(TARGET).logits(request.prompt_token_ids, result.token_ids)
        exact = rows - rows.max(axis=1, keepdims=True)
        exact -= np.log(np.exp(exact).sum(axis=1, keepdims=True))
        own = [row[token] for row, token in zip(exact, result.token_ids, strict=True)]
        require(len(result.logprobs) == len(own), f"{len(result.logprobs)} log-probabilities of {len(own)} tokens")
        errors[name] = max(abs(entry.sampled - value) for entry, value in zip(result.logprobs, own, strict=True))
    bound = 2 * reference_model(TARGET).rounding(prompts[0], result.token_ids) + 1e-5
    require(errors["float32"] <= bound, f"float32 is off by {errors['float32']:.2g}, its rounding is below {bound:.2g}")
    require(errors["bfloat16"] > bound, f"bfloat16 is off by {errors['bfloat16']:.2g} only: it computes in float32")
    with contextlib.suppress(UnsupportedCall):  # Few engines have float64.
        [result] = load("none", target=tiny["target"], dtype="float64").generate(greedy([(1, 5, 2)], 24))
        reference_model(tiny["target"]).judge_greedy((1, 5, 2), result.token_ids, "a text in float64")


def seed(load: Load, tiny: dict[str, Path], prompts: Prompts) -> None:
    """Check that a seed repeats texts and that another one changes all.

    At a temperature of 2, the highest that many engines take, two texts of six tokens are equal once in 1e13.
    """
    asked = [GenerationRequest(p[:16], max_tokens=8, ignore_eos=True, temperature=1.5) for p in prompts[:4]]
    later = [GenerationRequest(prompts[4][:8], max_tokens=6, ignore_eos=True, temperature=2.0)] * 20
    first, other, again = (
        [[result.token_ids for result in results] for results in started_anew(load, value, asked, later)]
        for value in (1, 2, 1)
    )
    require(first[0] == again[0], "the same seed gives other texts")
    require(first[0] != other[0], "another seed gives the same texts")
    same = [len(asked) + n for n, (one, two) in enumerate(zip(first[1], other[1], strict=True)) if one == two]
    require(not same, f"requests {same} have the same text with another seed")


def started_anew(load: Load, seed: int, *calls: list[GenerationRequest]) -> Iterator[list[GenerationResult]]:
    """Yield the results of each call of a new generator."""
    load("none").generate(calls[0][:1])  # Another generator, so that this one is not the one before.
    for requests in calls:
        yield load("draft_model k=3", seed=seed).generate(requests)


def max_model_len(load: Load, tiny: dict[str, Path], prompts: Prompts) -> None:
    [result] = load("draft_model k=3", max_model_len=96).generate(greedy([prompts[0]], 100))
    room = 96 - len(prompts[0])
    require(len(result.token_ids) == room, f"{len(result.token_ids)} tokens, max_model_len 96 leaves room for {room}")
    require(result.finish_reason is FinishReason.LENGTH, f"finished by {result.finish_reason}, expected length")


def max_num_seqs(load: Load, tiny: dict[str, Path], prompts: Prompts) -> None:
    order: list[int] = []
    load("draft_model k=3", max_num_seqs=1).generate(
        greedy(prompts[:3], 8), lambda index, tokens, kinds: order.append(index)
    )
    if len(order) == len(set(order)):
        raise Inconclusive("the engine reports tokens at the end of a batch only")
    require(order == sorted(order), f"one request at a time was asked for; tokens came from requests {order}")


def num_blocks(load: Load, tiny: dict[str, Path], prompts: Prompts) -> None:
    results = load("draft_model k=3", "preemption").generate(greedy(prompts[:6], 40))
    if not any(result.preemptions for result in results):
        raise Inconclusive("the engine reports no preemption")


def logprobs_mode(load: Load, tiny: dict[str, Path], prompts: Prompts) -> None:
    request = GenerationRequest(prompts[0], max_tokens=6, ignore_eos=True, temperature=0.5, seed=1, logprobs=1)
    raw, shaped = (
        load("draft_model k=3", logprobs_mode=mode).generate([request])[0].logprobs for mode in ("raw", "processed")
    )
    lower = sum(first.top[0][1] < second.top[0][1] - 1e-4 for first, second in zip(raw, shaped, strict=True))
    require(lower > 0, "raw and processed log-probabilities are equal at a temperature of 0.5")


def speculative_token_tree(load: Load, tiny: dict[str, Path], prompts: Prompts) -> None:
    probe(load, prompts)


def repeated(prompts: Prompts) -> list[GenerationRequest]:
    """Return requests with prompts in which prompt lookup finds drafts."""
    return greedy([(*prompt[:12], *prompt[:12]) for prompt in prompts[:4]], 24)


PROBES: dict[str, Probe] = {
    probe.__name__: probe
    for probe in (
        method,
        num_speculative_tokens,
        num_speculative_tokens_per_batch_size,
        speculative_token_tree,
        ngram_min,
        ngram_max,
        draft_sample_method,
        rejection_sample_method_block,
        synthetic_acceptance_rates,
        synthetic_acceptance_length,
        dtype,
        seed,
        max_model_len,
        max_num_seqs,
        num_blocks,
        logprobs_mode,
    )
}
"""Probes of the options with a visible effect.

`block_size`, `max_num_batched_tokens` and `async_scheduling` change no output by themselves: GEN-4 and GEN-36 require
that."""


@case("GEN-37", option=list(PROBES), reach=REACH, p_values=2)
def test_an_option_takes_effect_or_is_refused(load: Load, tiny: dict[str, Path], prompts: Prompts, option: str) -> None:
    """An engine that refuses is unsupported; one that does not report where the effect would show, inconclusive."""
    try:
        PROBES[option](load, tiny, prompts)
    except NotTold as silent:
        raise Inconclusive(silent.reason) from silent

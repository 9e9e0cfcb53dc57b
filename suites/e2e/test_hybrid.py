"""Hybrid targets: the recurrent state is that of the accepted tokens, whatever is drafted and rejected (contract GEN).

A state cannot be masked as keys can. One that has read a rejected draft, another request's tokens or too few of its own
changes every later token. Log-probabilities show it where the most likely token stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from verispec import fixtures
from verispec.cases import case
from verispec.engines.protocol.generation import GenerationRequest, GenerationResult, Generator
from verispec.judge import Inconclusive, Mismatch
from verispec.suites.e2e._again import Again
from verispec.suites.e2e._chunk_states import chunk_mistakes
from verispec.suites.e2e._explained_texts import explained_texts
from verispec.suites.e2e._lengths import LAYOUTS as CHUNKED
from verispec.suites.e2e._lengths import judge_lengths, requests_of_lengths
from verispec.suites.e2e._logprobs import Text, check_batch, check_result
from verispec.suites.e2e._reference_model import reference_model
from verispec.suites.e2e._setups import LAYOUTS, Load, counted, greedy, layout_of, require, stepped
from verispec.suites.e2e._texts import check_texts

TARGET = fixtures.model("hybrid")
LENGTH = 32
METHODS = ["none", "ngram k=3", "draft_model k=3"]
DRAFTS = ["none", "ngram k=3", "draft_model k=1", "draft_model k=3", "draft_model k=8"]
REACH = "a hybrid target: attention and recurrent layers"
RATES = {"none": (0.0, 0.0, 0.0), "first": (1.0, 0.0, 0.0), "two": (1.0, 1.0, 0.0), "all": (1.0, 1.0, 1.0)}
"""Drafts of three that every verification accepts, as synthetic rates."""


def batch(prompts: Any, count: int) -> list[GenerationRequest]:
    """Return greedy requests with prompts of several lengths; they repeat, so that prompt lookup drafts."""
    starts = [prompt[: 6 + 5 * (n % 4)] for n, prompt in enumerate(prompts[:count])]
    return greedy([(*start, *start) for start in starts], LENGTH)


def judge(
    asked: Sequence[GenerationRequest], results: Sequence[GenerationResult], generator: Generator, memory: str = ""
) -> None:
    """Check that every token is the float64 hybrid's own, and that some drafts were rejected where any were verified.

    Raises:
        Inconclusive: no draft was rejected, so that nothing had to be rolled back.
        Mismatch: a token is not the most likely one after those before it.
    """
    model = reference_model(TARGET)

    def check(n: int, result: GenerationResult) -> None:
        try:
            model.judge_greedy(asked[n].prompt_token_ids, result.token_ids, f"request {n}")
        except Mismatch as mismatch:
            words = step_before(result, mismatch.failure.details.get("position", 0))
            raise Mismatch(replace(mismatch.failure, message=f"{mismatch.failure.message}{words}")) from None

    again, layout = Again(generator, asked), layout_of(memory)
    try:
        check_texts(asked, results, check, layout, again)
    except Mismatch as mismatch:
        raise explained_chunks(mismatch, again, layout.chunk) from None
    steps = [step for result in results for step in result.steps if step.drafted]
    if steps and all(step.accepted == step.drafted for step in steps):
        raise Inconclusive("no draft was rejected")


def step_before(result: GenerationResult, position: int) -> str:
    """Return words for the last step that ended before a token of an output; none where no such step had drafts."""
    ends, before = 0, None
    for step in result.steps:
        ends += step.accepted + 1
        if ends > position:
            break
        before = step
    if before is None or not before.drafted:
        return ""
    return f"; the step before accepted {before.accepted} drafts of {before.drafted}"


def explained_chunks(mismatch: Mismatch, again: Again, chunk: int) -> Mismatch:
    """Return the mismatch with the mistake between chunks that gives all texts of the requests, each alone.

    A request alone is read in whole chunks; beside others the ends of its chunks are not known.
    """
    texts, logprobs = [], {}
    with suppress(Exception):  # the failure that is known tells more
        for request in again.asked:
            if len(request.prompt_token_ids) > chunk:
                [result] = again.results([request])
                texts.append((request.prompt_token_ids, result.token_ids))
                logprobs[texts[-1]] = [entry.sampled for entry in result.logprobs or ()]
        mistakes = chunk_mistakes(TARGET, chunk)
        return explained_texts(mismatch, reference_model(TARGET), mistakes, texts, "alone, ", logprobs)
    return mismatch


@case("GEN-45", target="hybrid", draft=DRAFTS, reach=REACH)
def test_every_token_follows_the_accepted_ones(load: Load, prompts: Any, draft: str) -> None:
    """Requests of one batch accept different numbers of drafts; more follow in places that others had before."""
    generator = load(draft, target=TARGET)
    asked = batch(prompts, 8)
    judge(asked, generator.generate(asked), generator)
    later = batch(prompts[8:], 4)
    judge(later, generator.generate(later), generator)


@case(
    "GEN-45",
    target="hybrid",
    memory=LAYOUTS,
    draft=METHODS,
    reach=f"{REACH}, and chunked prefill or preemption",
)
def test_every_token_follows_the_accepted_ones_in_any_layout(load: Load, prompts: Any, memory: str, draft: str) -> None:
    """Seven requests share four places: a state goes over the ends of chunks, and is computed again when preempted.

    Of a state that was wrong at the start of a long prompt little is left at its end: log-probabilities show it.
    """
    asked = greedy([prompt[: 24 + 5 * n] for n, prompt in enumerate(prompts[12:19])], 40)
    asked = [replace(request, logprobs=0) for request in asked]
    generator = load(draft, memory, target=TARGET)
    results = generator.generate(asked)
    judge(asked, results, generator, memory)
    check_batch(results, asked, "raw", lambda request: reference_model(TARGET))


@case("GEN-45", target="hybrid", draft=METHODS, check="log-probabilities", reach=f"{REACH}, and logprobs")
def test_logprobs_follow_the_accepted_tokens(load: Load, prompts: Any, draft: str) -> None:
    """Greedy and sampled requests share a batch; the value shows a wrong state that leaves the token as it is."""
    asked = [
        replace(request, logprobs=0, temperature=0.7 * (n % 2), seed=n) for n, request in enumerate(batch(prompts, 6))
    ]
    results = load(draft, target=TARGET).generate(asked)
    check_batch(results, asked, "raw", lambda request: reference_model(TARGET))


@case(
    "GEN-45",
    target="hybrid",
    draft=METHODS[1:],
    memory=CHUNKED,
    check="lengths of prompts",
    reach=f"{REACH}, and a prompt or a last chunk of a few tokens",
)
def test_the_state_behind_a_prompt_of_any_length(load: Load, prompts: Any, draft: str, memory: str | None) -> None:
    """Prompts as long as a step with drafts, alone and with others: their state is kept as that of longer ones is."""
    model = reference_model(TARGET)

    def judge_one(request: GenerationRequest, result: GenerationResult, what: str) -> None:
        model.judge_greedy(request.prompt_token_ids, result.token_ids, what)
        check_result(Text(what, model, request, result.token_ids), result, "raw")

    asked = [replace(request, logprobs=0) for request in requests_of_lengths(prompts, memory)]
    judge_lengths(load(draft, memory or "", target=TARGET), asked, judge_one)


@case(
    "GEN-45",
    target="hybrid",
    accepted=list(RATES),
    draft="draft_model k=3",
    reach=f"{REACH}, and rejection_sample_method=synthetic",
)
def test_the_state_after_each_number_of_accepted_drafts(load: Load, prompts: Any, accepted: str) -> None:
    """Synthetic verification accepts the same drafts in every step; all other tokens are the target's own choice."""
    generator = load(
        "draft_model k=3",
        target=TARGET,
        rejection_sample_method="synthetic",
        synthetic_acceptance_rates=RATES[accepted],
    )
    asked = batch(prompts, 4)
    model = reference_model(TARGET)
    for n, (request, result) in enumerate(zip(asked, stepped(generator, asked), strict=True)):
        rows, place = model.logits(request.prompt_token_ids, result.token_ids), 0
        bound = model.rounding(request.prompt_token_ids, result.token_ids)
        for step in result.steps:
            wanted = min(int(sum(RATES[accepted])), step.drafted)
            require(step.accepted == wanted, f"request {n}: {step.accepted} drafts accepted, expected {wanted}")
            place += step.accepted + 1
            if place <= len(result.token_ids):
                row, token = rows[place - 1], result.token_ids[place - 1]
                behind = float(row.max() - row[token])
                what = f"request {n}: token {place - 1}, behind {step.accepted} accepted drafts of {step.drafted}"
                require(behind <= bound, f"{what}, is {token}; the target's is {row.argmax()}, ahead by {behind:.3g}")


@case(
    "GEN-45",
    target="hybrid",
    draft=["ngram k=3", "draft_model k=3"],
    check="pauses",
    reach=f"{REACH}, and num_speculative_tokens_per_batch_size",
)
def test_a_step_without_drafts_starts_from_the_accepted_ones(load: Load, prompts: Any, draft: str) -> None:
    """Requests end one after another: steps of three drafts, of one and of none follow each other in both orders."""
    schedule = ((1, 1, 3), (2, 2, 0), (3, 3, 3), (4, 4, 1), (5, 16, 0))
    generator = load(draft, target=TARGET, num_speculative_tokens_per_batch_size=schedule)
    asked = [replace(request, max_tokens=8 + 8 * n) for n, request in enumerate(batch(prompts, 5))]
    results, metrics = counted(generator, asked)
    judge(asked, results, generator)
    if not metrics.num_drafts:
        raise Inconclusive("no draft was verified")

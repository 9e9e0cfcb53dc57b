"""Log-probabilities under speculation: one entry a token, of the row that the token was chosen from (contract GEN)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from verispec import fixtures
from verispec.cases import case
from verispec.engines.protocol.generation import GenerationRequest, Generator
from verispec.judge import Inconclusive
from verispec.suites.e2e._logprobs import check_batch, check_prompt_entries
from verispec.suites.e2e._reference_model import ReferenceModel, greedy_text, reference_model
from verispec.suites.e2e._setups import LAYOUTS, METHODS, Load, greedy

TARGET = fixtures.model("target")
COUNTS = (None, 20, 0, None, 1, 3)
"""Log-probabilities that the requests of a batch want, up to the most that servers give; the first wants none."""
SHAPING: list[dict[str, Any]] = [
    {},
    {"repetition_penalty": 1.2043},
    {"temperature": 0.8137, "top_k": 8},
    {"temperature": 1.3271},
    {"temperature": 0.8, "presence_penalty": 0.7061},
    {"allowed_token_ids": tuple(range(0, 2048, 3))},
]
"""Numbers of four decimals: an engine that rounds them shows it in the log-probabilities alone."""


def batch(prompts: Any) -> list[GenerationRequest]:
    """Return twelve requests with parameters of their own, and three that end at a stop token.

    Prompts repeat, so that prompt lookup drafts.
    """
    asked = [
        GenerationRequest(
            (*prompt[:12], *prompt[:12]),
            max_tokens=24,
            ignore_eos=True,
            seed=n,
            logprobs=COUNTS[n % len(COUNTS)],
            **SHAPING[n % len(SHAPING)],
        )
        for n, prompt in enumerate(prompts[:12])
    ]
    for place, request in zip((5, 10, 14), asked[::6] * 2, strict=False):
        own = greedy_text(TARGET, request.prompt_token_ids, 24)
        asked.append(GenerationRequest(request.prompt_token_ids, 24, logprobs=2, stop_token_ids=(own[place],)))
    return asked


def of_target(request: GenerationRequest) -> ReferenceModel:
    return reference_model(TARGET)


@case("GEN-29", draft=METHODS, memory=[None, *LAYOUTS], reach="a request with logprobs")
def test_raw_logprobs_are_the_models_own(load: Load, prompts: Any, draft: str, memory: str | None) -> None:
    check_batch(load(draft, memory or "").generate(asked := batch(prompts)), asked, "raw", of_target)


@case("GEN-29", draft=METHODS[:2], top=0, reach="logprobs=0, the tokens' own log-probabilities")
def test_raw_logprobs_without_other_tokens(load: Load, prompts: Any, draft: str) -> None:
    """No request of a batch wants the most likely tokens beside its own.

    The second batch is greedy throughout, the third one has temperatures and limits alone.
    """
    asked = [replace(request, logprobs=0, max_tokens=12) for request in batch(prompts)[1:5]]
    plain = [replace(request, logprobs=0) for request in greedy([asked[0].prompt_token_ids], 12)]
    for requests in (asked, plain, asked[1:3]):
        check_batch(load(draft).generate(requests), requests, "raw", of_target)


@case("GEN-29", target="tiny", draft="draft_model k=8", reach="a request with logprobs, and steps of nine tokens")
def test_raw_logprobs_of_long_chains(load: Load, tiny: dict[str, Path]) -> None:
    """The small target drafts for itself, so that a step emits more tokens than those of other cases can."""
    target = tiny["target"]
    generator = load("draft_model k=8", target=target, drafter=target)
    asked = [replace(request, logprobs=2) for request in greedy([(1, 5, 2), (3, 7, 4)], 24)]
    results = generator.generate(asked)
    check_batch(results, asked, "raw", lambda request: reference_model(target))
    if not any(step.accepted > 4 for result in results for step in result.steps):
        raise Inconclusive("no step accepted five drafts")


@case("GEN-30", draft=METHODS, mode="processed", reach="a request with logprobs, logprobs_mode=processed_logprobs")
def test_processed_logprobs_are_what_was_sampled_from(load: Load, prompts: Any, draft: str) -> None:
    check_batch(load(draft, logprobs_mode="processed").generate(asked := batch(prompts)), asked, "processed", of_target)


@case(
    "GEN-30",
    draft="ngram k=3",
    sampler="request_state",
    mode="processed",
    reach="a request with logprobs, logprobs_mode=processed_logprobs",
)
def test_processed_logprobs_of_the_slots(load: Load, prompts: Any) -> None:
    generator = load("ngram k=3", sampler="request_state", logprobs_mode="processed")
    check_batch(generator.generate(asked := batch(prompts)), asked, "processed", of_target)


@case("GEN-31", draft=METHODS, memory=[None, *LAYOUTS], reach="a request with prompt_logprobs")
def test_prompt_logprobs_are_the_models_own(load: Load, prompts: Any, draft: str, memory: str | None) -> None:
    """Prompts of 1 to 64 tokens, whole and in chunks, among requests that do not ask; then a sampled request alone.

    Where memory is short, prompts are so long that a request is preempted and its prompt read again.
    """
    lengths = (60, 64, 62, 61, 50, 1) if memory == "preemption" else (9, 64, 30, 1, 50, 25)
    asked = [
        GenerationRequest(prompt[:length], max_tokens=12, ignore_eos=True, prompt_logprobs=count)
        for prompt, length, count in zip(prompts, lengths, (None, 2, 0, 1, None, 5), strict=False)
    ]
    generator = load(draft, memory or "")
    check_prompts(generator, asked)
    check_prompts(generator, [GenerationRequest(prompts[1][:30], 1, temperature=0.6, prompt_logprobs=2)])


@case("GEN-31", draft=METHODS, memory="one sequence", reach="a request with prompt_logprobs, and preemption")
def test_prompt_logprobs_of_prompts_that_are_read_twice(load: Load, prompts: Any, draft: str) -> None:
    """A prompt loses its blocks to the request before it while it is read, in three chunks, and is read anew."""
    asked = [
        GenerationRequest(prompt[:length], max_tokens=30, ignore_eos=True, prompt_logprobs=1)
        for prompt, length in zip(prompts[1:5], (64, 60, 50, 62), strict=True)
    ]
    check_prompts(load(draft, "one sequence"), asked)


@case("GEN-31", draft=METHODS[:2], prompts="long", reach="a request with prompt_logprobs")
def test_prompt_logprobs_of_long_prompts(load: Load, prompts: Any, draft: str) -> None:
    """Prompts of 130 and 300 tokens beside one of 20; one request asks for 20 likely tokens of each row."""
    long = tuple(token for prompt in prompts[:6] for token in prompt)
    asked = [
        GenerationRequest(long[-length:], max_tokens=3, ignore_eos=True, prompt_logprobs=count)
        for length, count in ((20, 1), (130, 20), (300, 2))
    ]
    check_prompts(load(draft), asked)


def check_prompts(generator: Generator, asked: list[GenerationRequest]) -> None:
    """Check the log-probabilities of every prompt, and the text after it where it is greedy."""
    for n, (request, result) in enumerate(zip(asked, generator.generate(asked), strict=True)):
        check_prompt_entries(reference_model(TARGET), request, result, f"prompt {n}")
        if request.greedy:
            reference_model(TARGET).judge_greedy(request.prompt_token_ids, result.token_ids, f"prompt {n}")

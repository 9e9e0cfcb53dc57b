"""Log-probabilities under speculation: one entry a token, of the row that the token was chosen from (contract GEN)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from verispec import fixtures
from verispec.cases import case
from verispec.cases.request_parameters import distribution, possible, processed, slack_after
from verispec.engines.protocol.generation import GenerationRequest, GenerationResult, TokenLogprobs
from verispec.judge import Inconclusive
from verispec.suites.e2e._reference_model import Array, greedy_text, reference_model
from verispec.suites.e2e._setups import LAYOUTS, METHODS, Load, greedy, require

TARGET = fixtures.model("target")
COUNTS = (None, 5, 0, None, 1, 3)
"""Log-probabilities that the requests of a batch want; the first wants none."""
SHAPING: list[dict[str, Any]] = [
    {},
    {"repetition_penalty": 1.2},
    {"temperature": 0.8, "top_k": 8},
    {"temperature": 1.3},
    {"temperature": 0.8, "presence_penalty": 0.7},
    {"allowed_token_ids": tuple(range(0, 2048, 3))},
]
ARITHMETIC = 1e-5
"""Error of a float32 log-softmax over 2,048 tokens."""


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


@case("GEN-29", draft=METHODS, memory=[None, *LAYOUTS], reach="a request with logprobs")
def test_raw_logprobs_are_the_models_own(load: Load, prompts: Any, draft: str, memory: str | None) -> None:
    check_batch(load(draft, memory or "").generate(asked := batch(prompts)), asked, "raw")


@case("GEN-29", draft=METHODS[:2], top=0, reach="logprobs=0, the tokens' own log-probabilities")
def test_raw_logprobs_without_other_tokens(load: Load, prompts: Any, draft: str) -> None:
    """No request of a batch wants the most likely tokens beside its own; the second batch is greedy throughout."""
    asked = [replace(request, logprobs=0, max_tokens=12) for request in batch(prompts)[1:5]]
    plain = [replace(request, logprobs=0) for request in greedy([asked[0].prompt_token_ids], 12)]
    for requests in (asked, plain):
        check_batch(load(draft).generate(requests), requests, "raw")


@case("GEN-30", draft=METHODS, mode="processed", reach="a request with logprobs, logprobs_mode=processed_logprobs")
def test_processed_logprobs_are_what_was_sampled_from(load: Load, prompts: Any, draft: str) -> None:
    check_batch(load(draft, logprobs_mode="processed").generate(asked := batch(prompts)), asked, "processed")


def check_batch(results: Sequence[GenerationResult], asked: Sequence[GenerationRequest], mode: str) -> None:
    steps = [step for result in results for step in result.steps]
    if any(step.drafted for step in steps) and not any(step.accepted > 0 for step in steps):
        raise Inconclusive("no draft was accepted")
    for n, (request, result) in enumerate(zip(asked, results, strict=True)):
        what, entries, wanted = (
            f"request {n}",
            result.logprobs,
            0 if request.logprobs is None else len(result.token_ids),
        )
        require(len(entries) == wanted, f"{what} has {len(entries)} log-probabilities, expected {wanted}")
        if wanted:
            check_entries(request, result.token_ids, entries, mode, what)


def check_entries(
    request: GenerationRequest, tokens: Sequence[int], entries: Sequence[TokenLogprobs], mode: str, what: str
) -> None:
    """Check the value of each token and the most likely tokens of its row."""
    model = reference_model(TARGET)
    rows = model.logits(request.prompt_token_ids, tuple(tokens))
    slack = model.rounding(request.prompt_token_ids, tuple(tokens))
    for i, (logits, token, entry) in enumerate(zip(rows, tokens, entries, strict=True)):
        row, off = logits, slack
        if mode == "processed":
            row, off = processed(logits, request, tokens[:i]), slack_after(slack, request)
        if mode == "processed" and not request.greedy:
            exact = distribution(row, request)
            if (possible(row, request, off) != (exact > 0)).any():
                continue  # A token at the edge of a limit may be in or out.
            with np.errstate(divide="ignore"):
                row = np.log(exact)
            off /= request.temperature
        check_row(row, token, entry, request.logprobs or 0, 2 * off + ARITHMETIC, f"{what}, token {i}")


def check_row(row: Array, token: int, entry: TokenLogprobs, top: int, bound: float, what: str) -> None:
    """Check one entry against the log-softmax of `row`; every value may be off by `bound`."""
    best = row.max()
    exact = row - best - np.log(np.exp(row - best).sum())
    off = abs(entry.sampled - exact[token])
    require(bool(off <= bound), f"{what}: log-probability {entry.sampled:.5f} of {token}, expected {exact[token]:.5f}")
    ids, values = [id_ for id_, _ in entry.top], [value for _, value in entry.top]
    require(len(set(ids)) == len(ids) == top, f"{what}: {len(ids)} most likely tokens {ids}, expected {top}")
    require(values == sorted(values, reverse=True), f"{what}: most likely tokens do not fall: {values}")
    if not top:
        return
    least = float(np.sort(exact)[-top])
    for id_, value in entry.top:
        same = (np.isneginf(exact[id_]) and value < -1e4) or abs(value - exact[id_]) <= bound
        require(bool(same), f"{what}: log-probability {value:.5f} of {id_}, expected {exact[id_]:.5f}")
        among = exact[id_] >= least - 2 * bound or np.isneginf(least)
        require(bool(among), f"{what}: {id_} at {exact[id_]:.5f} is not among the {top} most likely")


@case("GEN-31", draft=METHODS, memory=[None, *LAYOUTS], reach="a request with prompt_logprobs")
def test_prompt_logprobs_are_the_models_own(load: Load, prompts: Any, draft: str, memory: str | None) -> None:
    """Prompts of 1 to 64 tokens, whole and in chunks, among requests that do not ask.

    Where memory is short, prompts are so long that a request is preempted and its prompt read again.
    """
    lengths = (60, 64, 62, 61, 50, 1) if memory == "preemption" else (9, 64, 30, 1, 50, 25)
    asked = [
        GenerationRequest(prompt[:length], max_tokens=12, ignore_eos=True, prompt_logprobs=count)
        for prompt, length, count in zip(prompts, lengths, (None, 2, 0, 1, None, 5), strict=False)
    ]
    for n, (request, result) in enumerate(zip(asked, load(draft, memory or "").generate(asked), strict=True)):
        what, (first, *following) = f"prompt {n}", request.prompt_token_ids
        entries, top = result.prompt_logprobs, request.prompt_logprobs
        wanted = 0 if top is None else 1 + len(following)
        require(len(entries) == wanted, f"{what} has {len(entries)} log-probabilities, expected {wanted}")
        reference_model(TARGET).judge_greedy(request.prompt_token_ids, result.token_ids, what)
        if top is None:
            continue
        require(entries[0] is None, f"{what}: its first token has a log-probability")
        if following:
            own = [entry for entry in entries[1:] if entry is not None]
            require(len(own) == len(following), f"{what}: {len(following) - len(own)} tokens have no log-probability")
            read = GenerationRequest((first,), logprobs=top)
            check_entries(read, following, own, "raw", what)

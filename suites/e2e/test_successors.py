"""Requests that follow others, in the next call or in the same place of the batch (contract GEN)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from verispec import fixtures
from verispec.cases import case
from verispec.engines.protocol.generation import GenerationRequest, GenerationResult
from verispec.judge import Mismatch
from verispec.suites.e2e._parameters import check_tokens
from verispec.suites.e2e._reference_model import greedy_text, reference_model
from verispec.suites.e2e._setups import METHODS, Load, require

TARGET = fixtures.model("target")
LENGTH = 24

HOT: dict[str, Any] = {"temperature": 2.0}
GREEDY: dict[str, Any] = {"temperature": 0.0}
FOLLOWING: tuple[dict[str, Any], ...] = (
    HOT | {"seed": 1},
    HOT | {"seed": 2},
    GREEDY,
    HOT | {"seed": 3},
    HOT | {"seed": 2, "top_k": 1},
    HOT | {"seed": 4},
    GREEDY | {"repetition_penalty": 1.5},
    GREEDY,
)
"""Parameters of requests that follow each other.

A top-k of 1 makes a request as exact as a greedy one. At a temperature of 2 no two seeds have one text, and none has
the greedy one.
"""
REACH = "a request with other parameters than the one before it"


@case("GEN-51", sampler=["flat", "request_state"], draft=METHODS[:3], after="a call", reach=REACH)
def test_a_call_leaves_the_next_one_nothing(load: Load, prompts: Any, sampler: str, draft: str) -> None:
    """Requests with one prompt, one per call."""
    generator = load(draft, sampler=sampler)
    asked = following(prompts[1][:20])
    check_following(asked, [generator.generate([request])[0] for request in asked])


@case("GEN-51", sampler=["flat", "request_state"], draft=METHODS[:3], after="a request", reach=REACH)
def test_a_place_of_the_batch_keeps_nothing(load: Load, prompts: Any, sampler: str, draft: str) -> None:
    """Requests with one prompt in two places, and a second call with them in another order."""
    generator = load(draft, sampler=sampler, max_num_seqs=2)
    asked = following(prompts[1][:20])
    for batch in (asked, [*asked[1:], asked[0]]):
        check_following(batch, generator.generate(batch))


def following(prompt: Sequence[int]) -> list[GenerationRequest]:
    """Return a request for the prompt with each of `FOLLOWING`."""
    return [GenerationRequest(tuple(prompt), max_tokens=LENGTH, ignore_eos=True, **own) for own in FOLLOWING]


def check_following(asked: Sequence[GenerationRequest], results: Sequence[GenerationResult]) -> None:
    """Check that no request has the parameters or the seed of one before it."""
    plain = greedy_text(TARGET, asked[0].prompt_token_ids, LENGTH)
    for n, (request, result) in enumerate(zip(asked, results, strict=True)):
        what = f"request {n}, which follows others with other parameters,"
        before = [other for other in range(n) if results[other].token_ids == result.token_ids]
        if request.greedy or request.top_k == 1:
            try:
                check_tokens(reference_model(TARGET), request, result, what)
            except Mismatch as mismatch:
                if not before:
                    raise
                message = f"{mismatch.failure.message}; request {before[-1]} has the same text"
                raise Mismatch(replace(mismatch.failure, message=message)) from mismatch
            continue
        require(result.token_ids != plain, f"{what} has the greedy text, at a temperature of {request.temperature}")
        same = f"the text of request {before[-1]}, which has other parameters" if before else ""
        require(not before, f"{what} has a seed of {request.seed} and {same}")

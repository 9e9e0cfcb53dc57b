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
    GREEDY | {"repetition_penalty": 1.5},
    GREEDY,
    HOT | {"seed": 4},
)
"""Parameters of requests that follow each other: at a temperature of 2 no seeds have one text, or the greedy one."""
LIMITED = (*FOLLOWING[:4], HOT | {"seed": 5, "top_k": 1}, *FOLLOWING[:4])
"""A top-k of 1 makes a request as exact as a greedy one."""
OWN = {"seed and temperature": FOLLOWING, "top-k": LIMITED}
SAMPLERS = ["flat", "request_state"]
REACH = "a request with other parameters than the one before it"


@case("GEN-51", sampler=SAMPLERS, draft=METHODS[:3], parameter=list(OWN), after="a call", reach=REACH)
def test_a_call_leaves_the_next_one_nothing(load: Load, prompts: Any, sampler: str, draft: str, parameter: str) -> None:
    """Requests with one prompt, one per call."""
    generator = load(draft, sampler=sampler)
    asked = following(prompts[1][:20], OWN[parameter])
    check_following(asked, [generator.generate([request])[0] for request in asked], "follows other calls")


@case("GEN-51", sampler=SAMPLERS, draft=METHODS[:3], parameter=list(OWN), after="a request", reach=REACH)
def test_a_place_of_the_batch_keeps_nothing(load: Load, prompts: Any, sampler: str, draft: str, parameter: str) -> None:
    """Requests with one prompt in two places, and a second call with them in another order."""
    generator = load(draft, sampler=sampler, max_num_seqs=2)
    asked = following(prompts[1][:20], OWN[parameter])
    for batch in (asked, [*asked[1:], asked[0]]):
        check_following(batch, generator.generate(batch), "runs after others and beside one")


def following(prompt: Sequence[int], parameters: Sequence[dict[str, Any]]) -> list[GenerationRequest]:
    """Return a request for the prompt with each of the parameters."""
    return [GenerationRequest(tuple(prompt), max_tokens=LENGTH, ignore_eos=True, **own) for own in parameters]


def check_following(asked: Sequence[GenerationRequest], results: Sequence[GenerationResult], place: str) -> None:
    """Check that no request has the parameters or the seed of one before it; `place` says what it has to do with it."""
    plain = greedy_text(TARGET, asked[0].prompt_token_ids, LENGTH)
    for n, (request, result) in enumerate(zip(asked, results, strict=True)):
        what = f"request {n}, which {place} with other parameters,"
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
        other = [n for n in before if asked[n] != request]
        same = f"the text of request {other[-1]}, which has other parameters" if other else ""
        require(not other, f"{what} has a seed of {request.seed} and {same}")

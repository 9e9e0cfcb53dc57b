"""Requests that follow others, in the next call or in the same place of the batch (contract GEN)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from verispec import fixtures
from verispec.cases import case
from verispec.engines.protocol.generation import GenerationRequest, GenerationResult, Generator
from verispec.judge import Failure, Inconclusive, Mismatch
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
NARROWEST: dict[str, dict[str, Any]] = {"top-k": {"top_k": 1}, "top-p": {"top_p": 1e-4}, "min-p": {"min_p": 0.99}}
"""Limits that leave the likeliest token alone, which make a request as exact as a greedy one, but for near ties.

Some engines have no min-p of 1: the range of OpenVINO GenAI ends before it.
"""


def limited(limit: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return parameters with a limit among others; a longer request keeps it in use beside those after it."""
    one = HOT | {"seed": 5} | limit
    return (*FOLLOWING[:4], one, one | {"max_tokens": 3 * LENGTH}, *FOLLOWING[:4])


OWN = {"seed and temperature": FOLLOWING} | {name: limited(limit) for name, limit in NARROWEST.items()}
BROAD, FURTHER = list(OWN)[:2], list(OWN)[2:]
"""Parameters that are tested with every drafter, and those that are tested without one."""
SAMPLERS = ["flat", "request_state"]
REACH = "a request with other parameters than the one before it"


@case("GEN-51", sampler=SAMPLERS, draft=METHODS[:3], parameter=BROAD, after="a call", reach=REACH)
def test_a_call_leaves_the_next_one_nothing(load: Load, prompts: Any, sampler: str, draft: str, parameter: str) -> None:
    """Requests with one prompt, one per call."""
    generator = load(draft, sampler=sampler)
    asked = following(prompts[1][:20], OWN[parameter])
    results = [generator.generate([request])[0] for request in asked]
    other = partial(load, draft, sampler=sampler, max_num_seqs=2)
    decide(check_following(asked, results, "follows other calls", other))


@case("GEN-51", sampler=SAMPLERS, draft=METHODS[:3], parameter=BROAD, after="a request", reach=REACH)
def test_a_place_of_the_batch_keeps_nothing(load: Load, prompts: Any, sampler: str, draft: str, parameter: str) -> None:
    """Requests with one prompt in two places, and a second call with them in another order."""
    generator = load(draft, sampler=sampler, max_num_seqs=2)
    asked = following(prompts[1][:20], OWN[parameter])
    batches = (asked, [*asked[1:], asked[0]])
    results = [generator.generate(batch) for batch in batches]
    place, other = "runs after others and beside one", partial(load, draft, sampler=sampler)
    doubts = [check_following(*each, place, other) for each in zip(batches, results, strict=True)]
    decide([doubt for each in doubts for doubt in each])


@case("GEN-51", sampler=SAMPLERS, draft="none", parameter=FURTHER, after="a request", reach=REACH)
def test_a_place_of_the_batch_keeps_no_further_limit(load: Load, prompts: Any, sampler: str, parameter: str) -> None:
    test_a_place_of_the_batch_keeps_nothing(load, prompts, sampler, "none", parameter)


def following(prompt: Sequence[int], parameters: Sequence[dict[str, Any]]) -> list[GenerationRequest]:
    """Return a request for the prompt with each of the parameters."""
    common = {"max_tokens": LENGTH, "ignore_eos": True}
    return [GenerationRequest(tuple(prompt), **(common | own)) for own in parameters]


def check_following(
    asked: Sequence[GenerationRequest],
    results: Sequence[GenerationResult],
    place: str,
    other: Callable[[], Generator],
) -> list[str]:
    """Check that no request has the parameters or the seed of one before it.

    Args:
        asked: the requests.
        results: theirs.
        place: words for its place among those before it.
        other: function that loads another generator.

    Returns:
        A message for each request that is wrong in the same way where no request was before it: that is a matter of
        the clauses of its parameters.
    """
    plain = greedy_text(TARGET, asked[0].prompt_token_ids, LENGTH)
    doubts = []
    for n, (request, result) in enumerate(zip(asked, results, strict=True)):
        what = f"request {n}, which {place} with other parameters,"
        before = [m for m in range(n) if results[m].token_ids == result.token_ids]
        if is_exact(request):
            failure = wrong(request, result, what)
            if failure is not None and before:
                message = f"{failure.message}; request {before[-1]} has the same text"
                raise Mismatch(replace(failure, message=message))
            if failure is not None and failure != wrong(request, other().generate([request])[0], what):
                raise Mismatch(failure)
            if failure is not None:
                doubts.append(f"{failure.message}; alone in another generator it is wrong in the same way")
            continue
        require(result.token_ids != plain, f"{what} has the greedy text, at a temperature of {request.temperature}")
        equal = [m for m in before if asked[m] != request]
        same = f"the text of request {equal[-1]}, which has other parameters" if equal else ""
        require(not equal, f"{what} has a seed of {request.seed} and {same}")
    return doubts


def is_exact(request: GenerationRequest) -> bool:
    """Return True if the likeliest token alone is possible."""
    limits = [item for each in NARROWEST.values() for item in each.items()]
    return request.greedy or any(getattr(request, name) == value for name, value in limits)


def wrong(request: GenerationRequest, result: GenerationResult, what: str) -> Failure | None:
    """Return the failure of a request whose tokens are wrong; None for one that is right."""
    try:
        check_tokens(reference_model(TARGET), request, result, what)
    except Mismatch as mismatch:
        return mismatch.failure
    return None


def decide(doubts: Sequence[str]) -> None:
    """Leave the case undecided if a request is wrong whatever was before it.

    Raises:
        Inconclusive: there are doubts.
    """
    if doubts:
        raise Inconclusive(doubts[0])

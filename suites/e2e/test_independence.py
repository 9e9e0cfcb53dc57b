"""Requests owe nothing to others, to earlier calls and to their own first tokens (contract GEN)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from verispec import fixtures
from verispec.cases import case
from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import GenerationRequest, GenerationResult
from verispec.judge import Inconclusive, Kind
from verispec.suites.e2e._parameters import TokenShare, check_share
from verispec.suites.e2e._reference_model import reference_model
from verispec.suites.e2e._setups import METHODS, TREE, Load, counted, require
from verispec.suites.e2e._tiny import with_masks

TARGET = fixtures.model("target")
LENGTH = 48
RECENT = 8
"""Tokens before a token that may have had its random number."""

NARROW: dict[str, dict[str, Any]] = {"top-k": {"top_k": 5}, "top-p": {"top_p": 0.5}, "min-p": {"min_p": 0.2}}
SURE = 30.0
"""Expected number of tokens of which none at all has a chance of e^-30."""


@case(
    "GEN-23",
    parameter=list(NARROW),
    draft=[*METHODS[:2], TREE],
    others="limited",
    reach="a request beside ones with limits",
)
def test_a_neighbours_limit_is_not_ones_own(load: Load, prompts: Any, seed: int, parameter: str, draft: str) -> None:
    """Every second request has a limit. The others emit tokens that it would exclude."""
    asked = [
        GenerationRequest(
            prompt[:8],
            max_tokens=LENGTH,
            ignore_eos=True,
            temperature=1.5,
            seed=seed % 2**31 + n,
            **(NARROW[parameter] if n % 2 else {}),
        )
        for n, prompt in enumerate(prompts[:12])
    ]
    pairs = list(zip(asked, load(draft).generate(asked), strict=True))[::2]
    require_excluded(pairs, parameter, "requests without limits, whose neighbours have some,")


def require_excluded(pairs: Sequence[tuple[GenerationRequest, GenerationResult]], parameter: str, whose: str) -> None:
    """Require that requests without limits emit a token that a limit of others would exclude.

    Args:
        pairs: requests and their results.
        parameter: limit of the others, one of `NARROW`.
        whose: name of the requests in a message.
    """
    expected, seen = 0.0, 0
    reference_model(TARGET).announce((request.prompt_token_ids, result.token_ids) for request, result in pairs)
    for request, result in pairs:
        free, limited = (
            reference_model(TARGET).distributions(own, result.token_ids)
            for own in (request, replace(request, **NARROW[parameter]))
        )
        excluded = limited == 0
        expected += float((free * excluded).sum())
        seen += int(excluded[np.arange(len(free)), list(result.token_ids)].sum())
    if expected < SURE:
        raise Inconclusive(f"a {parameter} would exclude {expected:.1f} tokens")
    message = f"no token of {whose} lies outside of the others' {parameter}; {expected:.0f} should"
    require(seen > 0, message, Kind.LAW)


@case(
    "GEN-23",
    parameter=list(NARROW),
    draft=METHODS[:2],
    sampler=["flat", "request_state"],
    others="limited before",
    reach="a request after one with limits, beside one with limits",
)
def test_an_earlier_requests_limit_is_not_ones_own(
    load: Load, prompts: Any, seed: int, parameter: str, draft: str, sampler: str
) -> None:
    """Two places serve five requests: a long one with a limit, and beside it short ones with and without it in turn.

    What an engine keeps per place counts only while some request of the batch has that limit. Each request without one
    emits tokens that the limit of the request before it would exclude.
    """
    lengths = (280, 6, 90, 6, 90)
    asked = [
        GenerationRequest(
            prompt[:8],
            max_tokens=length,
            ignore_eos=True,
            temperature=1.5,
            seed=seed % 2**31 + n,
            **({} if length == 90 else NARROW[parameter]),
        )
        for n, (prompt, length) in enumerate(zip(prompts[12:17], lengths, strict=True))
    ]
    results = load(draft, sampler=sampler, max_num_seqs=2).generate(asked)
    for n, (request, result) in enumerate(zip(asked, results, strict=True)):
        if request.max_tokens == 90:
            require_excluded(
                [(request, result)], parameter, f"request {n}, which has no limit and follows one with it,"
            )


@case("GEN-5", calls=2, draft=[*METHODS[:3], TREE], reach="requests without a seed")
def test_a_call_repeats_no_other(load: Load, prompts: Any, draft: str) -> None:
    """Requests without a seed draw anew, in a batch and alone: two texts of 48 tokens that agree have no chance."""
    asked = [GenerationRequest(p[:8], max_tokens=LENGTH, ignore_eos=True, temperature=1.5) for p in prompts[:4]]
    generator = load(draft)
    first, second = ([result.token_ids for result in generator.generate(asked)] for _ in range(2))
    same = sum(one == other for one, other in zip(first, second, strict=True))
    require(same == 0, f"{same} of {len(asked)} requests without a seed have the same text in two calls", Kind.LAW)
    alone = [generator.generate([asked[-1]])[0].token_ids for _ in range(3)]
    own = len({*alone, first[-1], second[-1]})
    message = f"one request without a seed, in two batches and alone in three calls, has {own} texts, expected 5"
    require(own == 5, message, Kind.LAW)


@case("GEN-5", requests=40, draft=METHODS[:2], reach="requests without a seed")
def test_no_request_repeats_another(load: Load, prompts: Any, draft: str) -> None:
    """Equal requests without a seed, at the highest temperature that many engines take: equal texts have no chance."""
    asked = [GenerationRequest(prompts[0][:8], max_tokens=8, ignore_eos=True, temperature=2.0) for _ in range(40)]
    texts = [result.token_ids for result in load(draft).generate(asked)]
    own = len(set(texts))
    require(own == len(asked), f"{len(asked)} requests without a seed have {own} texts", Kind.LAW)


@case("GEN-5", check="tokens before", draft=[*METHODS[:3], TREE], reach="any sampled request")
def test_no_token_has_the_numbers_of_those_before(load: Load, prompts: Any, seed: int, draft: str) -> None:
    """At a temperature of 60 rows are almost flat: two draws by one number give the same token."""
    asked = [
        GenerationRequest(p[:8], max_tokens=LENGTH, ignore_eos=True, temperature=60.0, seed=seed % 2**31 + n)
        for n, p in enumerate(prompts[:12])
    ]
    share = TokenShare(f"tokens are one of the {RECENT} before them at a temperature of 60")
    for request, result in zip(asked, load(draft).generate(asked), strict=True):
        tokens = result.token_ids
        for place, row in enumerate(reference_model(TARGET).distributions(request, tokens)):
            recent = np.isin(np.arange(len(row)), tokens[max(place - RECENT, 0) : place])
            share.add(row * recent, tokens[place])
    share.check()


@case("GEN-12", seeds="0 and 1", draft=[*METHODS[:2], TREE], reach="a request with a seed of 0")
def test_a_seed_of_zero_is_a_seed(load: Load, prompts: Any, draft: str) -> None:
    """Three equal requests of a batch have one text per seed; rounding may move a draw of one of them, not of all."""
    asked = [
        GenerationRequest(prompts[0], max_tokens=4, ignore_eos=True, temperature=2.0, seed=n % 2) for n in range(6)
    ]
    texts = [result.token_ids for result in load(draft).generate(asked)]
    for own in (0, 1):
        require(len(set(texts[own::2])) < 3, f"requests with a seed of {own} have the texts {texts[own::2]}")
    require(len(set(texts)) > 1, f"seeds of 0 and 1 have the same text, {texts[0]}", Kind.LAW)


@case(
    "GEN-5",
    memory="preemption",
    check="numbers",
    draft=[*METHODS[:2], TREE],
    reach="more requests than the KV cache holds",
)
def test_a_resumed_request_draws_on(load: Load, prompts: Any, seed: int, draft: str) -> None:
    """At a temperature of 60 the random numbers choose the tokens: no run of five of them returns.

    Rows are almost flat there, so that nearly half of the tokens are among the less likely ones.
    """
    asked = [
        GenerationRequest(p, max_tokens=LENGTH, ignore_eos=True, temperature=60.0, seed=seed % 2**31 + n)
        for n, p in enumerate(prompts[:6])
    ]
    results = load(draft, "preemption").generate(asked)
    check_share(
        reference_model(TARGET),
        list(zip(asked, results, strict=True)),
        lambda rows: rows < np.median(rows, axis=1, keepdims=True),
        "tokens are of the less likely half of their rows",
    )
    if not any(result.preemptions for result in results):
        raise UnsupportedCall("the engine does not report preemptions")
    for n, result in enumerate(results):
        repeat = longest_repeat(result.token_ids)
        require(repeat < 5, f"{repeat} tokens of request {n}, preempted {result.preemptions} times, return", Kind.LAW)


def longest_repeat(tokens: Sequence[int]) -> int:
    """Return the maximum number of equal tokens at two distances of a text, in any eight places after each other."""
    own = np.array(tokens)
    longest = 0
    for shift in range(1, len(own) - 8):
        equal = (own[shift:] == own[:-shift]).astype(int)
        longest = max(longest, int(np.convolve(equal, np.ones(8, int), "valid").max()))
    return longest


@case("GEN-7", target="tiny", memory="budget", draft="draft_model k=3", reach="a token budget that cuts drafts")
def test_a_target_accepts_its_own_drafts(load: Load, tiny: dict[str, Path], seed: int) -> None:
    """The target drafts for itself, so that p = q. A budget of 6 tokens cuts the drafts of some requests.

    Rounding of float32 rejects about one draft in 100,000; distributions of other drafts reject one in 40.
    """
    generator = load("draft_model k=3", target=tiny["target"], drafter=tiny["target"], max_num_batched_tokens=6)
    _, metrics = counted(generator, own_drafts(seed))
    require_few_rejected(metrics.num_draft_tokens, metrics.num_accepted_tokens)


@case("GEN-7", target="tiny", draft="draft_model k=24", reach="num_speculative_tokens above 16")
def test_a_target_accepts_long_chains_of_its_own(load: Load, tiny: dict[str, Path], seed: int) -> None:
    """The target drafts for itself, so that p = q at every draft of a long chain."""
    _, metrics = counted(load("draft_model k=24", target=tiny["target"], drafter=tiny["target"]), own_drafts(seed))
    require_few_rejected(metrics.num_draft_tokens, metrics.num_accepted_tokens)


@case("GEN-7", target="tiny", draft="draft_model parallel k=2", reach="parallel_drafting is an accepted option")
def test_a_target_accepts_its_own_parallel_drafts(load: Load, tiny: dict[str, Path], seed: int) -> None:
    """The target drafts for itself. The first draft of a step needs no mask token, so that its p = q."""
    generator = load("draft_model parallel k=2", target=tiny["target"], drafter=with_masks(tiny["target"]))
    _, metrics = counted(generator, own_drafts(seed))
    require_few_rejected(metrics.num_drafts, metrics.accepted_per_position[0])


def own_drafts(seed: int) -> list[GenerationRequest]:
    """Return requests over eight tokens: a greedy one, and sampled ones of three temperatures.

    Drafts and their distributions are of the request's own temperature, and the first request has no distribution. Two
    thirds of the sampled requests have room for one or two drafts alone, after which they end.
    """
    return [
        GenerationRequest((4, 5, 2), max_tokens=40, ignore_eos=True),
        *(
            GenerationRequest(
                (n % 7 + 1, 5, 2),
                max_tokens=40 if n < 32 else 3 + n % 2,
                ignore_eos=True,
                temperature=(0.3, 1.0, 1.7)[n % 3],
                seed=seed % 2**31 + n,
            )
            for n in range(96)
        ),
    ]


def require_few_rejected(drafted: int, accepted: int) -> None:
    """Require that drafts of the target's own distribution are accepted, but for rounding."""
    require(drafted > 0, "no draft was verified", Kind.LAW)
    message = f"{drafted - accepted} of {drafted} drafts were rejected, whose p and q are the same"
    require(100 * (drafted - accepted) <= drafted, message, Kind.LAW)

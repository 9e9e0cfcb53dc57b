"""Steps of synthetic verification: random numbers of their own, and a last token of the target (contract GEN)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verispec.cases import case
from verispec.cases.request_parameters import forbidding, is_possible, processed, slack_after
from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import GenerationRequest, GenerationResult, Generator
from verispec.judge import Failure, Inconclusive, Kind, Mismatch
from verispec.judge.statistics import binomial_tail
from verispec.reference.oracle.philox import Draw, uniform
from verispec.suites.e2e._parameters import Setting
from verispec.suites.e2e._reference_model import ReferenceModel
from verispec.suites.e2e._setups import Load, require, with_steps
from verispec.suites.e2e._tiny import save_long

REACH = "rejection_sample_method=synthetic is an accepted option"
DEEP, LOOKUP, DRAWN, DEPTH = "ngram k=5", "ngram k=3", "draft_model k=3", 3
SAMPLERS = [None, "request_state"]
PREEMPTION: dict[str, Any] = {"block_size": 32, "num_blocks": 32, "max_num_seqs": 4, "max_model_len": 448}
MEMORY: dict[str | None, dict[str, Any]] = {None: {"max_num_seqs": 4}, "preemption": PREEMPTION}
"""Four texts of 400 tokens need 52 blocks, of which 31 are there."""


@pytest.fixture(scope="session")
def long(tmp_path_factory: pytest.TempPathFactory, tiny: dict[str, Path]) -> Path:
    """Return the folder of the target over eight tokens with positions for long texts."""
    return save_long(tiny["target"], tmp_path_factory.mktemp("long") / "target")


def texts(lengths: Sequence[int], seeds: Sequence[int | None]) -> list[GenerationRequest]:
    """Return requests with the same prompt; every second one is greedy, and others are hot."""
    return [
        GenerationRequest(
            (1, 5, 2, 1, 5, 2), max_tokens=length, ignore_eos=True, temperature=1.6 * (n % 2), seed=seeds[n]
        )
        for n, length in enumerate(lengths)
    ]


def synthetic(sampler: str | None, rates: tuple[float, ...]) -> dict[str, Any]:
    """Return the options of synthetic verification."""
    return {
        "sampler": sampler or "flat",
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": rates,
    }


LENGTHS = (330, 4, 40, 300, 9, 25, 300, 7, 60, 310, 12, 5)
RATES = (0.9, 0.7, 0.7, 0.45, 0.2)
NEAR = 1e-6
"""Distance of a number from a rate in float32 within which either decision is right."""
FEWEST = 200
"""Steps with drafts that a case must have seen."""


@case(
    "GEN-17",
    target="long",
    sampler="request_state",
    memory=list(MEMORY),
    draft=DEEP,
    rates="0.9 0.7 0.7 0.45 0.2",
    reach=REACH,
)
def test_a_seed_decides_what_rates_accept(load: Load, long: Path, seed: int, memory: str | None) -> None:
    """Compare every acceptance with the number of the request's seed, the draft's position and its step.

    Short requests come and go in the slots of four. Greedy ones have seeds too, which differ in their upper 32 bits,
    and positions pass 256. A number needs no model: the steps alone decide.
    """
    places = range(len(LENGTHS))
    seeds = [(seed + 1000 * n + (n << 36)) % 2**63 + (0, 0, -(2**63), 2**63)[n % 4] for n in places]
    asked = texts(LENGTHS, seeds)
    generator = load(DEEP, target=long, **synthetic("request_state", RATES), **MEMORY[memory])
    conditional = np.array(RATES) / np.array([1.0, *RATES[:-1]])
    judged = 0
    for n, (request, result) in enumerate(zip(asked, with_steps(generator.generate(asked)), strict=True)):
        for place, drafted, accepted in verifications(result):
            position = len(request.prompt_token_ids) + place - 1
            numbers = [uniform(seeds[n], position + j, j, Draw.ACCEPT) for j in range(drafted)]
            distances = np.array(numbers) - conditional[:drafted]
            if (np.abs(distances) < NEAR).any():
                continue
            wanted = int(np.append(distances >= 0, True).argmax())
            what = f"request {n} accepted {accepted} of {drafted} drafts after {place} tokens"
            require(accepted == wanted, f"{what}; the numbers of its seed and the rates {RATES} accept {wanted}")
            judged += 1
    if judged < FEWEST:
        raise Inconclusive(f"only {judged} steps have drafts")


def verifications(result: GenerationResult) -> Iterator[tuple[int, int, int]]:
    """Yield the number of tokens before each step with drafts, and its drafted and accepted drafts."""
    place = 0
    for step in result.steps:
        if step.drafted:
            yield place, step.drafted, step.accepted
        place += step.accepted + 1


LENGTH = 400
SPREAD = (0.7, 0.5, 0.35)
"""Unconditional rates at which the accepted drafts of two steps are equal with a probability of 0.275."""
EQUAL = sum((more - less) ** 2 for more, less in pairwise((1.0, *SPREAD, 0.0)))
RUN = 26
"""Steps in a row. Some two of 1,200 runs accept the same drafts with a chance of 1e-9."""
STEP_LAGS, PLACE_LAGS = range(1, 65), range(1, 257)
CHANCE = 1e-13
"""Chance of a share of equal steps at one distance; a case has 660 of them."""


@case("GEN-27", target="long", sampler=SAMPLERS, draft=LOOKUP, check="repeats", reach=REACH)
def test_no_step_repeats_the_numbers_of_another(load: Load, long: Path, seed: int, sampler: str | None) -> None:
    """Two steps accept as many drafts by chance alone, at one distance in steps or in tokens, or of two requests.

    Eight texts of 400 tokens have 1,200 steps, and every second pair of texts has no seed. Two texts are
    second samples. Numbers that return after 64 positions, or that serve two steps or two texts, give equal steps.
    """
    check_repeats(load(LOOKUP, target=long, max_num_seqs=8, **synthetic(sampler, SPREAD)), seed)


@case("GEN-27", target="long", sampler=SAMPLERS, draft=DRAWN, memory="preemption", check="repeats", reach=REACH)
def test_no_step_repeats_numbers_from_before_a_preemption(
    load: Load, long: Path, seed: int, sampler: str | None
) -> None:
    """Numbers that begin again give the steps after the prompt once more.

    A model has three drafts in each step. The fewer drafts of prompt lookup would shift the numbers of a generator.
    """
    check_repeats(load(DRAWN, target=long, drafter=long, **synthetic(sampler, SPREAD), **PREEMPTION), seed)


def check_repeats(generator: Generator, seed: int) -> None:
    """Check that eight texts of the generator have steps of their own, two of them second samples.

    Some engines refuse a second sample of a greedy request.
    """
    asked = texts((LENGTH,) * 6, [None if n & 2 else seed % 2**31 + 1000 * n for n in range(6)])
    asked[3] = replace(asked[3], n=2)
    try:
        answers = generator.generate([replace(asked[0], n=2), *asked[1:]])
    except UnsupportedCall:
        answers = generator.generate([asked[0], replace(asked[1], n=2), *asked[2:]])
    results = [sample for result in answers for sample in (result, *result.samples)]
    steps, places = [], np.full((len(results), LENGTH), -1)
    table = np.full((len(results), LENGTH), -1)
    for n, result in enumerate(with_steps(results)):
        own = [(place, accepted) for place, drafted, accepted in verifications(result) if drafted == DEPTH]
        steps.append(np.array([accepted for _, accepted in own]))
        for place, accepted in own:
            places[n, place] = accepted
        # Other steps keep their place: a fault pairs the steps as they follow each other.
        every = [step.accepted if step.drafted == DEPTH else -1 for step in result.steps][:LENGTH]
        table[n, : len(every)] = every
    if sum(map(len, steps)) < 3 * FEWEST:
        raise Inconclusive(f"only {sum(map(len, steps))} steps have {DEPTH} drafts")
    check_runs(steps)
    for name, rows, lags in (("steps", table, STEP_LAGS), ("tokens", places, PLACE_LAGS)):
        for lag in lags:
            check_share(rows.T, lag, f"{lag} {name} after each other")
        for distance in range(1, 5):
            check_share(rows, distance, f"of requests at a distance of {distance}, in the same of their {name}")


def check_runs(steps: Sequence[Any]) -> None:
    """Check that no two runs of `RUN` steps accept the same drafts."""
    seen = Counter(tuple(own[start : start + RUN].tolist()) for own in steps for start in range(len(own) - RUN + 1))
    run, count = seen.most_common(1)[0]
    require(count == 1, f"{count} times {RUN} steps in a row accept {run} drafts", Kind.LAW)


def check_share(rows: Any, lag: int, what: str) -> None:
    """Check pairs of rows at a distance: the share of equal entries, -1 aside, is that of independent ones.

    Pairs have no row in common, so that they are independent. They begin at the first row, then in the middle of pairs.
    """
    for start in (0, lag):
        first = [n for n in range(start, len(rows) - lag) if (n - start) // lag % 2 == 0]
        one, other = rows[first], rows[[n + lag for n in first]]
        both = (one >= 0) & (other >= 0)
        pairs, equal = int(both.sum()), int(((one == other) & both).sum())
        likely = binomial_tail(equal, pairs, EQUAL) >= CHANCE
        require(
            likely, f"{equal} of {pairs} steps {what} accept as many drafts, {EQUAL:.3f} of them by chance", Kind.LAW
        )


DEPTHS = ((1, 1, 4), (2, 3, 2), (4, 8, 1))
"""Drafts of each step, by the number of requests in it."""
FALLING = (0.85, 0.6, 0.4, 0.15)
UNLIKELY = 1e-12


@case(
    "GEN-27",
    target="long",
    sampler=SAMPLERS,
    draft="draft_model k=4",
    batch="of other sizes",
    reach="rejection_sample_method=synthetic, and num_speculative_tokens_per_batch_size",
)
def test_fewer_drafts_keep_to_the_first_rates(load: Load, long: Path, seed: int, sampler: str | None) -> None:
    """A K for each batch size: a step of one or two drafts accepts them at the first rates, not at the last ones."""
    lengths = (240, 420, 300, 140, 800)
    generator = load(
        "draft_model k=4",
        target=long,
        drafter=long,
        num_speculative_tokens_per_batch_size=DEPTHS,
        max_num_seqs=5,
        **synthetic(sampler, FALLING),
    )
    asked = texts(lengths, [seed % 2**31 + n for n in range(len(lengths))])
    results = with_steps(generator.generate(asked))
    conditional = np.array(FALLING) / np.array([1.0, *FALLING[:-1]])
    for depth in (1, 2, 4):
        accepted = [a for result in results for _, drafted, a in verifications(result) if drafted == depth]
        if len(accepted) < FEWEST // 4:
            raise Inconclusive(f"only {len(accepted)} steps have {depth} drafts")
        for j in range(depth):
            reached, kept = sum(a >= j for a in accepted), sum(a > j for a in accepted)
            rate = float(conditional[j])
            tail = min(binomial_tail(kept, reached, rate), binomial_tail(reached - kept, reached, 1 - rate))
            what = f"{kept} of {reached} drafts at place {j} of {depth} are accepted"
            require(tail >= UNLIKELY, f"{what}, the rate there is {rate:.3f}", Kind.LAW)


PARAMETERS = ("none", "penalties", "everything")
BEHIND = 60
"""Last tokens behind accepted drafts that a case must have seen."""


@case(
    "GEN-16",
    target="tiny",
    sampler=SAMPLERS,
    draft=[LOOKUP, DRAWN],
    memory=[None, "budget of 10"],
    rates="0.7 0.5 0.35",
    reach=REACH,
)
def test_the_last_token_of_a_step_is_the_targets(
    load: Load, tiny: dict[str, Path], seed: int, sampler: str | None, draft: str, memory: str | None
) -> None:
    """Rates decide about drafts alone: the token behind accepted ones follows from the target's row there.

    Requests have penalties, biases, masks and limits, or none, and every second one is greedy. Accepted drafts count as
    output, and they are tokens that the target would hardly choose. A budget that has no room for all drafts of a step
    puts the bonus token where the next draft would have been.
    """
    setting = replace(Setting.of(draft, tiny, ()), drafter=tiny["draft"] if draft == DRAWN else None)
    asked = [
        replace(request, temperature=1.3 * (n % 2), seed=seed % 2**31 + n)
        for n, request in enumerate(
            request for requests in zip(*map(setting.requests, PARAMETERS), strict=True) for request in requests
        )
    ]
    budget: dict[str, Any] = {"max_num_batched_tokens": 10, "max_num_seqs": 4} if memory else {}
    generator = load(draft, target=setting.target, drafter=setting.drafter, **synthetic(sampler, SPREAD), **budget)
    behind = 0
    for n, (request, result) in enumerate(zip(asked, with_steps(generator.generate(asked)), strict=True)):
        what = f"request {n} with {PARAMETERS[n % len(PARAMETERS)]}"
        behind += check_last_tokens(setting.reference, request, result, what)
    if behind < BEHIND:
        raise Inconclusive(f"only {behind} steps accept a draft and emit one more token")


def check_last_tokens(model: ReferenceModel, request: GenerationRequest, result: GenerationResult, what: str) -> int:
    """Check the last token of each step; returns how many of them are behind an accepted draft."""
    tokens, behind, place = result.token_ids, 0, 0
    rows = model.logits(request.prompt_token_ids, tokens)
    slack = slack_after(model.rounding(request.prompt_token_ids, tokens), request)
    for step in result.steps:
        place += step.accepted
        if place >= len(tokens):
            break
        token, row = tokens[place], processed(rows[place], request, tokens[:place])
        kind = "bonus" if step.accepted == step.drafted else "recovered"
        behind_what = f"behind {step.accepted} accepted drafts of {step.drafted}, at position {place}"
        where = f"{what} emitted the {kind} token {token} {behind_what}"
        if not np.isfinite(row[token]):
            why = forbidding(request, token, len(row), tokens[:place])
            raise Mismatch(Failure(Kind.VALUE, f"{where}, which {why} forbids"))
        if request.greedy:
            best = int(row.argmax())
            require(bool(row[best] - row[token] <= slack), f"{where}; the target's is {best}")
        else:
            require(is_possible(row, request, token, slack), f"{where}, outside of its top-k or top-p")
        behind += step.accepted > 0
        place += 1
    return behind

"""Sampled generation: every token follows the target's exact distribution (contract GEN)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from verispec import fixtures
from verispec.cases import case
from verispec.cases.request_parameters import distribution
from verispec.engines.protocol.generation import GenerationRequest, GenerationResult, Generator
from verispec.judge import Failure, Inconclusive, Kind, Mismatch
from verispec.judge.statistics import assert_distribution, binomial_tail, fits
from verispec.judge.statistics.budget import p_value_level
from verispec.judge.statistics.effects import TEXT, effects
from verispec.judge.statistics.rates import Rates
from verispec.judge.statistics.rows import Rows
from verispec.judge.statistics.text import GivenText, kinds_of
from verispec.judge.statistics.trial import Trial
from verispec.suites.e2e._lengths import listed
from verispec.suites.e2e._reference_model import Array, ReferenceModel, reference_head, reference_model
from verispec.suites.e2e._seeds import require_seeds
from verispec.suites.e2e._sequences import sequence_names
from verispec.suites.e2e._setups import (
    ARGMAX,
    DRAFTERS,
    FURTHER,
    MANY,
    METHODS,
    MODELS,
    MTP,
    PARALLEL,
    Load,
    greedy,
    require,
    require_accepted,
    require_accepted_drafts,
    sampled_in_parts,
    stepped,
)
from verispec.suites.e2e._tiny import VOCAB, with_masks

REACH = "temperature above 0"
TARGET = fixtures.model("target")
LIMITS: dict[str, dict[str, Any]] = {
    "none": {"temperature": 1.0},
    "temperature": {"temperature": 0.6},
    "top_k": {"temperature": 1.0, "top_k": 20},
    "top_p": {"temperature": 1.0, "top_p": 0.8},
}
LENGTH = 48
TEXTS = 32


def sampled(prompts: Any, trial: Trial, number: int, draft: str, limits: str) -> list[GenerationRequest]:
    """Return requests with a short prompt and a seed each, so that most rows of the reference model are tested.

    Cases with the same drafter and limits have the same texts in round `number`: the reference model reads them once.
    """
    seed = random.Random(f"{trial.run_seed}/{draft}/{limits}").getrandbits(31) + 1000 * number
    return [
        GenerationRequest(p[:16], max_tokens=LENGTH, ignore_eos=True, seed=seed + n, **LIMITS[limits])
        for n, p in enumerate(prompts)
    ]


@case("GEN-5", draft=[*METHODS, ARGMAX], limits=list(LIMITS), reach=REACH)
def test_every_token_follows_the_targets_distribution(
    load: Load, prompts: Any, trial: Trial, draft: str, limits: str
) -> None:
    """Every token of real texts against the float64 reference model, by its bets and by its place.

    1,536 tokens find recovery from the target and most likely tokens of the residual. Where drafts are unknown, 768 may
    do. 12,000, in nightly runs, find acceptance x1.3, a temperature x0.95 and 5 % of drafts kept.
    """
    drafter = reference_model(fixtures.model("draft")) if draft.startswith("draft_model") else None
    check_texts(load(draft), prompts, trial, draft, limits, drafter)


@case("GEN-5", draft=FURTHER, limits="none", reach=REACH)
def test_every_token_follows_the_targets_distribution_whoever_drafts(
    load: Load, prompts: Any, trial: Trial, draft: str
) -> None:
    check_texts(load(draft), prompts, trial, draft, "none", None)


def check_texts(
    generator: Generator, prompts: Any, trial: Trial, draft: str, limits: str, drafter: ReferenceModel | None
) -> None:
    """Collect evidence from rounds of texts; `drafter` is the model whose distributions the drafts have, if known.

    Half of the texts of a standard run do, where no drafts are known and all that they promise to find is excluded.
    """
    model = GivenText(trial.weight, trial.seed, drafted=drafter is not None)
    cap = trial.size(TEXTS * LENGTH)
    is_halved = drafter is None and cap == TEXTS * LENGTH
    size = TEXTS // 2 if is_halved else TEXTS
    waiting: list[GenerationRequest] = []
    rounds = 0

    def step() -> None:
        nonlocal rounds
        if not waiting:
            waiting.extend(sampled(prompts[:TEXTS], trial, rounds, draft, limits))
            rounds += 1
        asked = waiting[:size]
        del waiting[:size]
        results = generator.generate(asked)
        if drafter is not None:
            drafter.announce(texts_of(asked, results))
        rounding = reference_model(TARGET).rounding_of_all(texts_of(asked, results))
        for request, result in zip(asked, results, strict=True):
            add_text(model, request, result, draft, drafter, rounding)

    # Places at a cut are left out; one round is enough.
    trial.collect(model.evidence, cap * 3 // 4, step, effects(TEXT) if is_halved else ())


def certain_drafts(rows: Array) -> Array:
    """Return distributions that have probability 1 at the most likely token of each row."""
    # A row of np.eye would be taken from a matrix of V * V entries.
    certain = np.zeros(rows.shape)
    certain[np.arange(len(rows)), rows.argmax(axis=1)] = 1
    return certain


def texts_of(
    asked: Sequence[GenerationRequest], results: Sequence[GenerationResult]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the prompt and the emitted tokens of each request."""
    return [(request.prompt_token_ids, result.token_ids) for request, result in zip(asked, results, strict=True)]


def add_text(
    model: GivenText,
    request: GenerationRequest,
    result: GenerationResult,
    draft: str,
    drafter: ReferenceModel | None,
    rounding: float,
) -> None:
    """Judge one text; places whose top-p cut rounding may move are left out, unless what they emit is excluded.

    Args:
        model: evidence of the texts.
        request: request of the text.
        result: its result.
        draft: name of the drafter.
        drafter: model whose distributions the drafts have; None where they are unknown.
        rounding: maximum error of a logit of the target.
    """
    target, tokens = reference_model(TARGET), np.array(result.token_ids)
    p = wide = target.distributions(request, result.token_ids)
    judged = np.ones(len(tokens), bool)
    if request.top_p < 1:  # A sum in float32 may move the cut by 1e-5.
        wide, narrow = (
            target.distributions(replace(request, top_p=min(request.top_p + move, 1.0)), result.token_ids)
            for move in (1e-5, -1e-5)
        )
        judged = ((wide > 0) == (narrow > 0)).all(axis=1)
    for place, (row, token) in enumerate(zip(wide, result.token_ids, strict=True)):
        message = f"token {token} at position {place} has probability 0 under the request's top-k and top-p"
        require(row[token] > 0, message, Kind.LAW)
    q = None
    if drafter is not None:
        q = drafter.distributions(
            GenerationRequest(request.prompt_token_ids, temperature=request.temperature), result.token_ids
        )
        if draft == ARGMAX:
            q = certain_drafts(q)
    kinds, verified = kinds_of(result.steps, len(tokens)) if result.steps else (None, None)
    at = np.flatnonzero(judged)
    if not len(at):
        return
    rows = Rows(p[at], None if q is None else q[at])
    known = (None, None) if kinds is None or verified is None else (kinds[at], verified[at])
    model.add(rows, np.arange(len(at)), tokens[at], *known, slack=2 * rounding / request.temperature)


SEQUENCES = 4000
PROMPT = (1, 5, 2)
HEAT = 2.0
"""Flat enough that 86 sequences are expected ten times or more; half of the first drafts are rejected (p and q overlap
by 0.47), so that a recovered token from the wrong distribution gives G near 380 where the level is at 196."""


@case("GEN-6", target="tiny", draft=METHODS[:3], limits=["none", "top_k"], reach=REACH, p_values=1)
def test_whole_sequences_follow_the_law(load: Load, tiny: dict[str, Path], seed: int, draft: str, limits: str) -> None:
    """Up to 4,000 equal prompts, three tokens each, over 8 tokens: 512 sequences, each with its exact probability."""
    drafter = tiny["draft"] if draft.startswith("draft_model") else None
    asked = [
        GenerationRequest(
            PROMPT, max_tokens=3, ignore_eos=True, temperature=HEAT, top_k=5 if limits == "top_k" else 0, seed=seed + n
        )
        for n in range(SEQUENCES)
    ]
    generator = load(draft, target=tiny["target"], drafter=drafter, max_num_seqs=MANY)
    exact = sequence_law(tiny["target"], asked[0]).ravel()
    results = sampled_in_parts(generator, asked, lambda results, part: fits(sequence_counts(results), exact, part))
    assert_distribution(sequence_counts(results).tolist(), exact, "sequences of three tokens", sequence_names())


@case("GEN-6", target="tiny", draft="draft_model k=1", drafter="sure", reach=REACH, p_values=1)
def test_sequences_with_sure_drafts_follow_the_law(
    load: Load, tiny: dict[str, Path], seed: int, draft: str = "draft_model k=1"
) -> None:
    """The drafter gives one token more than 0.9, where the target is less sure: the second token of a text shows it."""
    asked = [
        GenerationRequest(PROMPT, max_tokens=3, ignore_eos=True, temperature=1.0, seed=seed + n)
        for n in range(SEQUENCES)
    ]
    generator = load(draft, target=tiny["target"], drafter=tiny["sure"], max_num_seqs=MANY)
    exact = sequence_law(tiny["target"], asked[0]).reshape(-1, VOCAB).sum(axis=1)

    def counts(results: Sequence[GenerationResult]) -> Array:
        pairs: Array = sequence_counts(results).reshape(-1, VOCAB).sum(axis=1)
        return pairs

    results = sampled_in_parts(generator, asked, lambda results, part: fits(counts(results), exact, part))
    assert_distribution(counts(results).tolist(), exact, "pairs of tokens with drafts that are sure")
    require_accepted_drafts(results)


@case(
    "GEN-6",
    target="tiny",
    draft="draft_model parallel k=2",
    sampler=["flat", "request_state"],
    reach=f"{REACH}, and parallel_drafting",
    p_values=1,
)
def test_sequences_with_parallel_drafts_follow_the_law(
    load: Load, tiny: dict[str, Path], seed: int, sampler: str, draft: str = "draft_model parallel k=2"
) -> None:
    """As above; both drafts of a step are drawn from rows of one pass, each from a distribution of its own."""
    asked = [
        GenerationRequest(PROMPT, max_tokens=4, ignore_eos=True, temperature=1.0, seed=seed + n)
        for n in range(SEQUENCES)
    ]
    drafter = with_masks(tiny["draft"])
    generator = load(draft, target=tiny["target"], drafter=drafter, sampler=sampler, max_num_seqs=MANY)
    exact = sequence_law(tiny["target"], asked[0]).ravel()
    results = sampled_in_parts(generator, asked, lambda results, part: fits(sequence_counts(results), exact, part))
    what = "sequences of three tokens with parallel drafts"
    assert_distribution(sequence_counts(results).tolist(), exact, what, sequence_names())
    require_accepted_drafts(results)


def sequence_counts(results: Sequence[GenerationResult]) -> Array:
    """Return the counts of the first three tokens, [V * V * V]."""
    counts = np.zeros((VOCAB,) * 3, dtype=np.int64)
    for result in results:
        counts[tuple(result.token_ids[:3])] += 1
    return counts.ravel()


def sequence_law(target: Path, request: GenerationRequest) -> Array:
    """Return the exact probability of every continuation of three tokens, [V, V, V]."""
    exact = np.zeros((VOCAB,) * 3)
    for a, b in itertools.product(range(VOCAB), repeat=2):
        first, second, third = (distribution(row, request) for row in reference_model(target).logits(PROMPT, (a, b, 0)))
        exact[a, b] = first[a] * second[b] * third
    return exact


@case(
    "GEN-7",
    draft=["draft_model k=1", "draft_model k=3", ARGMAX, "eagle3 k=3", PARALLEL, MTP],
    limits=["none", "temperature"],
    reach=REACH,
)
def test_first_drafts_are_accepted_at_the_overlap(
    load: Load, prompts: Any, trial: Trial, draft: str, limits: str
) -> None:
    """Steps know their place in the output, so the overlap there is exact. A nightly run has eight rounds of texts."""
    name = draft.partition(" k=")[0]
    folder = fixtures.model(DRAFTERS[name])
    drafter = reference_head(folder, TARGET) if name in ("eagle3", "mtp") else reference_model(folder)
    rates = Rates(trial.weight, trial.seed, "first drafts")
    for number in range(trial.size(1)):
        asked = sampled(prompts[:TEXTS], trial, number, draft, limits)
        results = stepped(load(draft), asked)
        texts = texts_of(asked, results)
        drafter.announce(texts)
        rounding = sum(model.rounding_of_all(texts) for model in (reference_model(TARGET), drafter))
        for request, result in zip(asked, results, strict=True):
            add_first_drafts(rates, request, result, drafter, rounding, certain=draft == ARGMAX)
        if rates.evidence.failed:
            break
    require(rates.evidence.count > 0, "no step had a draft", Kind.LAW)
    trial.conclude(rates.evidence, rates.evidence.count)


@case(
    "GEN-7",
    target="tiny",
    drafter="target",
    draft="draft_model k=3",
    batch="cut by the budget",
    reach="steps without room for the drafts of all requests",
    p_values=1,
)
def test_drafts_of_the_target_itself_are_accepted(load: Load, tiny: dict[str, Path], seed: int) -> None:
    """Target and drafter have one distribution, so that rounding alone rejects a draft.

    Three requests share ten tokens per step, which cut the drafts of one of them.
    """
    asked = [
        GenerationRequest((1 + n % 7,), max_tokens=48, ignore_eos=True, temperature=HEAT, seed=seed + n)
        for n in range(48)
    ]
    generator = load(
        "draft_model k=3", target=tiny["target"], drafter=tiny["target"], max_num_seqs=3, max_num_batched_tokens=10
    )
    results = stepped(generator, asked)
    steps = [step for result in results for step in result.steps if 0 < step.drafted < 3]
    if len(steps) < 20:
        raise Inconclusive(f"only {len(steps)} steps cut the drafts of a request")
    model = reference_model(tiny["target"])
    rounding = max(model.rounding(one.prompt_token_ids, two.token_ids) for one, two in zip(asked, results, strict=True))
    rejected, decided = sum(s.accepted < s.drafted for s in steps), sum(min(s.accepted + 1, s.drafted) for s in steps)
    p = binomial_tail(rejected, decided, 2 * rounding / HEAT)
    what = f"{rejected} of {decided} drafts of small steps were rejected"
    require(p >= p_value_level(), f"{what}; rounding explains that many with a probability of {p:.2g}", Kind.LAW)


def add_first_drafts(
    rates: Rates,
    request: GenerationRequest,
    result: GenerationResult,
    drafter: ReferenceModel,
    rounding: float,
    *,
    certain: bool,
) -> None:
    """Judge the first draft of every step of one text.

    Args:
        rates: evidence of the drafts.
        request: request of the text.
        result: its result.
        drafter: model of the drafts.
        rounding: maximum error of a logit of the target and of one of the drafter, together.
        certain: True if drafts have probability 1.
    """
    place, places, accepted = 0, [], []
    for step in result.steps:
        if step.drafted and place < len(result.token_ids):
            places.append(place)
            accepted.append(step.accepted > 0)
        place += step.accepted + 1
    if not places:
        return
    models = reference_model(TARGET), drafter
    p, q = (model.distributions(request, result.token_ids, places) for model in models)
    if certain:
        q = certain_drafts(q)
    rates.add(np.minimum(p, q).sum(axis=1), np.array(accepted), slack=rounding / request.temperature)


ROUNDS = 6
DECISIONS = 8
"""Draws for one emitted token at K = 3: each of three drafts is drawn and verified, and the last token is drawn."""


def seeded(params: Mapping[str, Any]) -> str:
    """Return the reach of cases in which a seed must decide everything: vLLM samples drafts only on request."""
    return "a request with a seed" + (
        ", draft_sample_method=probabilistic" if params["draft"] in (*MODELS, PARALLEL, MTP) else ""
    )


NO_CHANCE = 1e-12
"""A level of a test so small that the family-wise error rate does not count it."""


@case("GEN-12", draft=[*METHODS, ARGMAX, PARALLEL, MTP], reach=seeded, p_values=1)
def test_a_seed_gives_the_same_tokens_in_any_batch(load: Load, prompts: Any, draft: str) -> None:
    check_seeds(load, prompts, draft)


@case(
    "GEN-12",
    check="others wait",
    draft=METHODS[:3],
    reach=lambda params: f"{seeded(params)}, and more requests than max_num_seqs",
)
def test_a_seed_gives_the_same_tokens_while_others_wait(load: Load, prompts: Any, draft: str) -> None:
    """Three places serve ten requests, which end one by one: the running ones keep their random numbers.

    At a temperature of 2, the most that many engines take, rounding decides little, but most likely tokens of a draft
    model are hardly ever accepted.
    """
    lengths, heat = (16, 5, 12, 8, 15, 6, 11, 9), 0.9 if draft.startswith("draft_model") else 2.0
    check_seeds(load, prompts, draft, heat=heat, lengths=lengths, level=NO_CHANCE, max_num_seqs=3)


def check_seeds(
    load: Load,
    prompts: Any,
    draft: str,
    memory: str = "",
    heat: float = 0.9,
    lengths: Sequence[int] = (24,) * 4,
    level: float | None = None,
    **more: Any,
) -> None:
    """Check requests of `lengths` and two greedy ones together, and each of the first alone.

    Where any differs, `ROUNDS` batches of them tell a fault from rounding, and so do further calls of it alone.

    The shape of a batch may change logits by rounding, and thereby a draw that lies as close to its limit. That is
    rare: logits that move by r change a distribution by at most r / T in total variation. A token takes `DECISIONS`
    draws. `level` is that of the test, which is a p-value of the budget without it.
    """
    generator, places = load(draft, memory, **more), (3, 0, 5, 1, *range(6, len(lengths) + 2))
    before = generator.metrics()
    trials, chance = 0, 0.0
    differing: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []
    wrong: list[GenerationRequest] = []
    for seed in range(ROUNDS):
        asked = [
            GenerationRequest(prompts[n], max_tokens=length, temperature=heat, ignore_eos=True, seed=100 * seed + n)
            for n, length in zip(places, lengths, strict=True)
        ]
        results = generator.generate([*asked, *greedy([prompts[2], prompts[4]], 24)])
        for n, request, together in zip(places, asked, results, strict=False):
            alone = generator.generate([request])[0].token_ids
            rounding = reference_model(TARGET).rounding(request.prompt_token_ids, alone)
            chance = max(chance, len(alone) * DECISIONS * rounding / request.temperature)
            trials += 1
            if alone != together.token_ids:
                differing.append((n, alone, together.token_ids))
                wrong.append(request)
        if not differing:
            require_accepted(generator.metrics().since(before))
            if not draft.startswith("ngram"):  # Greedy requests have no seed whose drafts count.
                require_accepted_drafts(results[: len(asked)])
            return
    require_seeds(generator, wrong)
    p = binomial_tail(len(differing), trials, min(chance, 1.0))
    of = f" of max_tokens {listed(sorted({request.max_tokens for request in wrong}))}" if len(set(lengths)) > 1 else ""
    what = f"{len(differing)} of {trials} requests{of} differ alone and in a batch"
    if level is None:
        level = p_value_level()
    if p >= level:
        raise Inconclusive(f"{what}; rounding explains that many with a probability of {p:.2g}")
    n, alone, together_ids = differing[0]
    details = {"prompt": n, "alone": list(alone), "together": list(together_ids), "p": p, "alpha": level}
    message = (
        f"{what}, the first after {_agreed(alone, together_ids)} tokens; rounding explains one in {1 / chance:,.0f}"
    )
    raise Mismatch(Failure(Kind.RELATION, message, wrong=len(differing), total=trials, details=details))


@case("GEN-12", memory="blocks of 32, chunks of 24", draft=["none", "draft_model k=3"], reach=seeded, p_values=1)
def test_a_seed_gives_the_same_tokens_while_prompts_are_read(load: Load, prompts: Any, draft: str) -> None:
    """Requests draw and draft while the prompt of another one is read, which must not use its random numbers."""
    check_seeds(load, prompts, draft, "blocks of 32, chunks of 24")


@case(
    "GEN-12",
    check="last tokens",
    draft=[*MODELS, PARALLEL, MTP],
    reach=lambda params: f"{seeded(params)}, near max_tokens",
    p_values=1,
)
def test_a_seed_gives_the_same_last_tokens(load: Load, prompts: Any, draft: str) -> None:
    """Requests end with every number of drafts left, beside longer ones that have all drafts of each step.

    At a temperature of 2, the most that many engines take, rounding decides little. A number that one draws for drafts
    past its end changes its last tokens.
    """
    check_seeds(load, prompts, draft, heat=2.0, lengths=(16, *range(2, 11), 16, 16))


@case("GEN-12", batch="pairs", draft=["ngram k=auto", "draft_model k=auto"], reach=seeded, p_values=1)
def test_a_seed_gives_the_same_tokens_with_a_chosen_k(load: Load, prompts: Any, draft: str) -> None:
    """Pairs of requests have other acceptance than each of them, and a pair costs more than one.

    A model's drafts are accepted at a temperature of 10 too, where rounding decides next to nothing.
    """
    heat = 0.9 if draft.startswith("ngram") else 10.0
    check_seeds(load, prompts, draft, heat=heat, max_num_seqs=2)


@case("GEN-12", rates="0.8 0.5 0.2", draft=["draft_model k=3"], reach=seeded, p_values=1)
def test_a_seed_gives_the_same_tokens_in_synthetic_mode(load: Load, prompts: Any, draft: str) -> None:
    """Greedy requests draw numbers too, which must not be those of a request with a seed.

    At a temperature of 30 rounding decides nothing.
    """
    rates: dict[str, Any] = {
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": (0.8, 0.5, 0.2),
    }
    check_seeds(load, prompts, draft, heat=30.0, **rates)


def _agreed(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the common prefix of two texts, in tokens."""
    return next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )

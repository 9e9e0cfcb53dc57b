"""Logits processors, limits and log-probabilities of end-to-end samplers (contract WS)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from verispec.cases import case
from verispec.cases.orders import one_sign
from verispec.engines import Engine, UnsupportedCall
from verispec.engines.protocol.generation import TokenLogprobs
from verispec.engines.protocol.sampling import RequestContext, SamplerBatch
from verispec.judge import Failure, Inconclusive, Kind, Mismatch, SamplerUnderTest, sampler_of
from verispec.judge.statistics.supposed import Sample, assert_law
from verispec.run.record import FAULT
from verispec.suites.sampler._mistaken import mistaken_outcomes, telling_laws
from verispec.suites.sampler._parameters import (
    AND,
    COUNTS,
    GRAMMAR_VOCAB,
    IGNORED,
    LONG_VOCAB,
    MASKS,
    OR,
    PENALTIES,
    WRONG,
    Step,
    distances,
    fault_of,
    greedy_by_rule,
    long_words_step,
    outcomes,
    pairs_step,
    random_step,
)

Test = Callable[..., None]
DRAFT = ["present", "absent"]
FAMILIES = [None, "request_state", "fused"]
GUMBEL = [None, "request_state"]


@pytest.fixture
def sampler(engine: Engine, seed: int, family: str | None) -> SamplerUnderTest:
    torch.manual_seed(seed)
    return SamplerUnderTest(sampler_of(engine, family))


def reach(params: Mapping[str, Any]) -> str:
    """Return the request that production sends, with its parameter."""
    if params["parameter"] == "min tokens":
        return "a request with min_tokens and stop tokens, in the step in which accepted drafts reach min_tokens"
    return f"a request with {params['parameter']}"


def greedy_cases(clause: str, parameters: list[str]) -> Test:
    """Make the cases of greedy requests with a parameter, each beside one without it; tokens must be exact."""

    @case(clause, family=FAMILIES, parameter=parameters, batch=["all greedy", "mixed"], draft=DRAFT, reach=reach)
    def check(sampler: SamplerUnderTest, seed: int, parameter: str, batch: str, draft: str) -> None:
        check_greedy(sampler, np.random.default_rng(seed), parameter, batch, draft)

    return check


ROUNDS = 16
MOST_ROUNDS = 64
"""Rounds until one shows the parameter. A negative presence penalty does so half a time per round: e^-30 for none."""


def check_greedy(
    sampler: SamplerUnderTest,
    rng: np.random.Generator,
    parameter: str,
    batch: str,
    draft: str,
    *,
    is_long: bool = False,
) -> None:
    """In a mixed batch requests 0, 3 and 6 are sampled.

    Raises `Inconclusive` when the parameter changed no token behind an accepted draft.
    """
    heat = np.where(np.arange(len(COUNTS)) % 3 == 0, 0.8, 0.0) if batch == "mixed" else 0.0

    def further() -> Step:
        if parameter == "long bad words":
            return long_words_step(rng, draft, heat)
        vocab = LONG_VOCAB if is_long else GRAMMAR_VOCAB if parameter == "grammar" else 32
        return random_step(rng, parameter, draft, heat, vocab=vocab, is_long=is_long)

    behind = 0
    for done in range(MOST_ROUNDS):
        if behind and done >= ROUNDS:
            break
        try:
            behind += check_step(sampler, further(), parameter, is_long=is_long, further=further)
        except Mismatch as mismatch:
            if mismatch.failure.details.get(FAULT) != IGNORED or parameter not in OPPOSITE:
                raise
            if not is_right(sampler, [random_step(rng, OPPOSITE[parameter], draft, heat) for _ in range(ROUNDS)]):
                raise
            raise Mismatch(renamed(mismatch.failure, of_one_sign(parameter))) from None
    if not behind:
        raise Inconclusive(f"{parameter} changed no token behind an accepted draft")


OPPOSITE = {
    "presence penalty": "negative presence penalty",
    "negative presence penalty": "presence penalty",
    "frequency penalty": "frequency reward",
    "frequency reward": "frequency penalty",
    "repetition penalty": "repetition reward",
    "repetition reward": "repetition penalty",
}
"""Penalties of one sign with that of the other; a repetition penalty is one above 1 and a reward below."""


def is_right(sampler: SamplerUnderTest, steps: Sequence[Step]) -> bool:
    """Return True if a sampler gets the greedy requests of all steps right, and their parameter changes some token."""
    try:
        return sum(check_step(sampler, step, "") for step in steps) > 0
    except (Mismatch, UnsupportedCall):
        return False


def of_one_sign(parameter: str) -> str:
    """Return the fault of a sampler that ignores penalties of one sign alone."""
    name, value = next(iter(PENALTIES[parameter].items()))
    own, other = one_sign(name, value)
    return f"{own} is ignored, and {other} is not"


def renamed(failure: Failure, fault: str) -> Failure:
    """Return a failure with another name of its fault."""
    message = failure.message.removeprefix(f"{failure.details[FAULT]}: ")
    return replace(failure, message=f"{fault}: {message}", details={**failure.details, FAULT: fault})


def check_step(
    sampler: SamplerUnderTest,
    step: Step,
    parameter: str,
    *,
    is_long: bool = False,
    further: Callable[[], Step] | None = None,
) -> int:
    """Check the greedy requests of a step; returns how many had a token changed behind an accepted draft.

    Several faults that explain a wrong step are distinguished by `further` steps.
    """
    tokens = sampler.process_and_verify(step.batch, step.contexts).tokens
    behind = 0
    for b in np.flatnonzero(step.batch.temperature.numpy() == 0).tolist():
        ruled = greedy_by_rule(step, b)
        if ruled is None:
            continue
        expected, changed = ruled
        if expected != tokens[b]:
            what = f"greedy request {b} with {parameter if b in step.special else 'no parameter'}"
            drafts = list(step.batch.draft_token_ids[b])
            details: dict[str, Any] = {"expected": expected, "got": tokens[b], "drafts": drafts}
            given = f"drafts {drafts}{' after a long output' if is_long else ''}{limit_of(step.contexts[b])}"
            message = f"{what} emitted {tokens[b]}, expected {expected} ({given})"
            # A number that is cut shows in few rows of a long output, as if it were ignored there.
            if not is_long and (fault := told_apart(sampler, fault_of(step, tokens), further)):
                message, details = f"{fault}: {message}", {**details, FAULT: fault}
            raise Mismatch(Failure(Kind.VALUE, message, details=details))
        behind += any(j > 0 for j in changed) if b in step.special else 0
    return behind


FURTHER = 12
"""Further steps at most that tell faults apart."""


def told_apart(sampler: SamplerUnderTest, fault: str, further: Callable[[], Step] | None) -> str:
    """Return those of the faults in `fault` that explain further steps too; empty if none does.

    A further step that the engine refuses or fails tells nothing: the step before is the failure.
    """
    faults = fault.split(OR)
    for _ in range(FURTHER):
        if further is None or len(faults) < 2:
            break
        step = further()
        try:
            told = fault_of(step, sampler.process_and_verify(step.batch, step.contexts).tokens).split(OR)
        except (Mismatch, UnsupportedCall):
            break
        faults = [name for name in faults if name in told]
    return OR.join(faults)


TOGETHER = (*MASKS, "logit bias", "penalties")
PAIR_ROUNDS = 4


@case(
    "WS-22",
    family=FAMILIES,
    parameter="pairs",
    batch=["all greedy", "mixed"],
    draft=DRAFT,
    reach="two parameters",
    quick=False,
)
def test_every_two_parameters_combine(sampler: SamplerUnderTest, seed: int, batch: str, draft: str) -> None:
    """Every two masks, biases and penalties of one request: neither changes what the other does.

    Pairs that an engine refuses are left out, and those of which one parameter alone is wrong already.
    """
    rng = np.random.default_rng(seed)
    heat = np.where(np.arange(len(COUNTS)) % 3 == 0, 0.8, 0.0) if batch == "mixed" else 0.0

    def check_together(parameters: tuple[str, ...]) -> None:
        def further() -> Step:
            return pairs_step(rng, parameters, draft, heat)

        for _ in range(PAIR_ROUNDS):
            check_step(sampler, further(), AND.join(parameters), further=further)

    @functools.cache
    def is_wrong_alone(parameter: str) -> bool:
        try:
            check_together((parameter,))
        except Mismatch:
            return True
        return False

    undecided: list[UnsupportedCall | Inconclusive] = []
    pairs = list(itertools.combinations(TOGETHER, 2))
    for pair in pairs:
        try:
            check_together(pair)
        except UnsupportedCall as refusal:
            undecided.append(refusal)
        except Mismatch:
            alone = next(filter(is_wrong_alone, pair), None)
            if alone is None:
                raise
            undecided.append(Inconclusive(f"{alone} alone is wrong already, so that pairs show nothing"))
    if len(undecided) == len(pairs):
        raise undecided[0]


def long_cases(clause: str, parameters: list[str]) -> Test:
    """Make the cases of greedy requests with a parameter and an output of 700 tokens, some of them 300 times in it."""

    @case(clause, family=GUMBEL, parameter=parameters, history="long", reach=reach)
    def check(sampler: SamplerUnderTest, seed: int, parameter: str) -> None:
        check_greedy(sampler, np.random.default_rng(seed), parameter, "mixed", "absent", is_long=True)

    return check


def limit_of(context: RequestContext) -> str:
    """Return min_tokens of a request and the tokens that it forbids, to follow its drafts; empty without them."""
    least, before = context.params.min_tokens, len(context.output_token_ids)
    if not least:
        return ""
    rows = "row" if least - before == 1 else f"{least - before} rows"
    forbidden = ", ".join(map(str, context.stop_token_ids))
    return f"; min_tokens {least} after {before} tokens forbids {forbidden} in the first {rows}"


CALLS, COPIES = 50, 60
APART = 0.12
"""Total variation distance of a step's outcomes from the ones under `WRONG` distributions."""
OPEN = 0.1
"""Probability of all outcomes but the likeliest: 300 of the requests, so that two cells at least are large enough."""


def sampled_cases(clause: str, parameters: list[str]) -> Test:
    """3,000 sampled requests with a parameter, by the number of accepted drafts and the token after them.

    A total variation distance of 0.1 from the exact probabilities is found with a chance above 0.99, by 20 cells.
    """

    @case(clause, family=GUMBEL, parameter=parameters, mode="law", draft=DRAFT, reach=reach, p_values=1)
    def check(sampler: SamplerUnderTest, seed: int, parameter: str, draft: str) -> None:
        check_sampled(sampler, seed, parameter, draft)

    return check


def check_sampled(sampler: SamplerUnderTest, seed: int, parameter: str, draft: str) -> None:
    """Batches of one request without the parameter, then `COPIES` with it, and greedy ones without it among them."""
    rng = np.random.default_rng(seed)

    def sample(number: int) -> Sample:
        pair = telling_pair(rng, parameter, draft)
        exact = outcomes(pair, 1)
        counts = np.zeros(exact.shape, dtype=np.int64)
        for call in range(number * CALLS, (number + 1) * CALLS):
            first = seed % 2**40 + call * COPIES
            batch = repeated(pair, seeds=range(first, first + COPIES))
            tokens = sampler.process_and_verify(batch.batch, batch.contexts).tokens
            for b in batch.special:
                counts[len(tokens[b]) - 1, tokens[b][-1]] += 1
        return Sample(counts.ravel().tolist(), exact.ravel(), lambda: mistaken_outcomes(pair, 1))

    what, numbers = f"accepted drafts and the token after them with {parameter}", itertools.count(1)
    names = [f"{accepted} accepted, then {token}" for accepted, token in np.ndindex(3, VOCAB)]
    assert_law(sample(0), what, names, lambda: sample(next(numbers)))


VOCAB = 8
CANDIDATES = 32
"""Pairs of which one is taken: no pair shows every mistake with the order and the rows of parameters."""


def telling_pair(rng: np.random.Generator, parameter: str, draft: str) -> Step:
    """Return a greedy request and a sampled one with the parameter, whose outcomes are open and show every fault.

    Of `CANDIDATES` it is the first that shows the most wrong orders of two neighbours and limits of some rows alone.
    """

    def candidate() -> Step:
        while True:
            pair = random_step(rng, parameter, draft, [0.0, 1.3], counts=(1, 2), vocab=VOCAB, varied=False)
            if 1 - outcomes(pair, 1).max() >= OPEN and all(apart >= APART for apart in distances(pair, 1, WRONG)):
                return pair

    def shown(pair: Step) -> int:
        return sum(apart >= APART for apart in distances(pair, 1, telling_laws(pair, 1)))

    return max((candidate() for _ in range(CANDIDATES)), key=shown)


def repeated(pair: Step, seeds: range) -> Step:
    """Return a step of one request of the first kind, then of the second kind once per seed, alternating by threes."""
    kinds = [0]
    for n, _ in enumerate(seeds):
        kinds += [1] if n % 3 else [1, 0]
    rows = [slice(0, pair.batch.counts[0] + 1), slice(pair.batch.counts[0] + 1, None)]
    drafts = [slice(0, pair.batch.counts[0]), slice(pair.batch.counts[0], None)]
    index, own = torch.tensor(kinds), iter(seeds)
    probs = pair.batch.draft_probs
    limits = {name: getattr(pair.batch, name) for name in ("top_k", "top_p", "min_p")}
    batch = SamplerBatch(
        torch.cat([pair.batch.logits[rows[kind]] for kind in kinds]),
        [list(pair.batch.draft_token_ids[kind]) for kind in kinds],
        pair.batch.temperature[index],
        None if probs is None else torch.cat([probs[drafts[kind]] for kind in kinds]),
        seeds=[next(own) if kind else 0 for kind in kinds],
        **{name: None if values is None else values[index] for name, values in limits.items()},
    )
    return Step(batch, [pair.contexts[kind] for kind in kinds], tuple(n for n, kind in enumerate(kinds) if kind))


test_greedy_tokens_keep_to_allowed_ids = greedy_cases("WS-16", ["allowed ids"])
test_sampled_tokens_keep_to_allowed_ids = sampled_cases("WS-16", ["allowed ids"])
test_greedy_tokens_complete_no_bad_word = greedy_cases("WS-17", ["bad words", "long bad words"])
test_sampled_tokens_complete_no_bad_word = sampled_cases("WS-17", ["bad words"])
test_greedy_tokens_have_min_tokens = greedy_cases("WS-18", ["min tokens"])
test_sampled_tokens_have_min_tokens = sampled_cases("WS-18", ["min tokens"])
test_tokens_after_a_long_output_have_min_tokens = long_cases("WS-18", ["min tokens"])
test_greedy_tokens_are_biased = greedy_cases("WS-19", ["logit bias"])
test_sampled_tokens_are_biased = sampled_cases("WS-19", ["logit bias"])
test_greedy_tokens_are_penalised = greedy_cases("WS-20", list(PENALTIES))
test_tokens_after_a_long_output_are_penalised = long_cases(
    "WS-20", ["presence penalty", "frequency penalty", "frequency reward", "repetition penalty", "penalties"]
)
test_sampled_tokens_are_penalised = sampled_cases("WS-20", ["penalties", "repetition reward"])
test_sampled_tokens_keep_to_min_p = sampled_cases("WS-21", ["min-p"])
test_greedy_tokens_combine_parameters = greedy_cases("WS-22", ["everything"])
test_sampled_tokens_combine_parameters = sampled_cases(
    "WS-22", ["penalties and limits", "min-p and top-p", "all limits", "everything"]
)
test_greedy_tokens_keep_to_a_grammar = greedy_cases("WS-24", ["grammar"])
test_sampled_tokens_keep_to_a_grammar = sampled_cases("WS-24", ["grammar"])

WANTED = (None, 5, 0, 1, None, 3, 2, 20)
"""Log-probabilities per request; the first wants none."""
ARITHMETIC = 2e-5
"""Error of a float32 log-softmax of logits up to 30 after a division by a temperature of 0.8."""


@case(
    "WS-23",
    family=GUMBEL,
    mode=["raw", "processed"],
    batch=["all greedy", "mixed"],
    draft=DRAFT,
    reach="a request with logprobs",
)
def test_log_probabilities_are_those_of_the_row(
    sampler: SamplerUnderTest, seed: int, mode: str, batch: str, draft: str
) -> None:
    """Requests with penalties and without, and different numbers of log-probabilities, 0 among them."""
    check_log_probabilities(sampler, np.random.default_rng(seed), "penalties", mode, batch, draft)


@case("WS-23", family=GUMBEL, mode="processed", parameter="logit bias", batch="mixed", reach="a request with logprobs")
def test_log_probabilities_show_the_whole_bias(sampler: SamplerUnderTest, seed: int) -> None:
    """A bias in 16 bits is off by 0.001 at least, which changes hardly any token."""
    check_log_probabilities(sampler, np.random.default_rng(seed), "logit bias", "processed", "mixed", "present")


@case(
    "WS-23",
    family=GUMBEL,
    mode=["raw", "processed"],
    check="synthetic mode",
    reach="a request with logprobs, and rejection_sample_method=synthetic",
)
def test_log_probabilities_of_synthetic_mode_are_those_of_the_row(
    sampler: SamplerUnderTest, seed: int, mode: str
) -> None:
    """Rates decide how many drafts are accepted, and change no row."""
    rates = [0.9, 0.7, 0.5, 0.35, 0.25]
    check_log_probabilities(sampler, np.random.default_rng(seed), "penalties", mode, "mixed", "absent", rates)


def check_log_probabilities(
    sampler: SamplerUnderTest,
    rng: np.random.Generator,
    parameter: str,
    mode: str,
    batch: str,
    draft: str,
    rates: list[float] | None = None,
) -> None:
    """Check the log-probabilities of five steps whose every second request has a parameter."""
    heat = np.where(np.arange(len(COUNTS)) % 3 == 0, 0.8, 0.0) if batch == "mixed" else 0.0
    accepted = 0
    for _ in range(5):
        step = random_step(rng, parameter, draft, heat)
        contexts = [
            replace(context, params=replace(context.params, logprobs=wanted))
            for context, wanted in zip(step.contexts, WANTED, strict=True)
        ]
        answer = sampler.process_and_verify(replace(step.batch, synthetic_rates=rates), contexts, mode)
        for b, (tokens, entries) in enumerate(zip(answer.tokens, answer.logprobs, strict=True)):
            asked = contexts[b].params.logprobs
            if len(entries) != (wanted := 0 if asked is None else len(tokens)):
                message = f"request {b}, with logprobs={asked}, has {len(entries)} log-probabilities, expected {wanted}"
                raise Mismatch(Failure(Kind.VALUE, message))
            for j, (token, entry) in enumerate(zip(tokens, entries, strict=False)):
                what = f"request {b}, token {j}"
                require_number(len(entry.top), asked or 0, [each.params.logprobs for each in contexts], what)
                check_entry(exact_row(step, b, j, mode), token, entry, contexts[b], what)
            accepted += len(entries) > 1
    if not accepted:
        raise Inconclusive("no request with log-probabilities accepted a draft")


def exact_row(step: Step, b: int, j: int, mode: str) -> Any:
    """Return the log-probabilities [V] of row j of request b."""
    row = step.row(b, j, processors=mode == "processed")
    if mode == "processed":
        row = row / (float(step.batch.temperature[b]) or 1.0)
    best = row.max()
    return row - best - np.log(np.exp(row - best).sum())


def near(values: Any, exact: Any) -> bool:
    """Return True if all log-probabilities are right up to rounding; NaN is not, minus infinity equals itself."""
    return bool(np.isclose(values, exact, rtol=0, atol=ARITHMETIC).all())


def require_number(got: int, wanted: int, asked: Sequence[int | None], what: str) -> None:
    """Require as many most likely tokens as a request asks for; a failure names another one that asks for as many.

    Args:
        got: number in an entry.
        wanted: number that the entry's request asks for.
        asked: numbers that the requests of the batch ask for.
        what: name of the entry.
    """
    if got != wanted:
        other = f", as many as request {asked.index(got)} asks for" if got in asked else ""
        raise Mismatch(Failure(Kind.VALUE, f"{what}: {got} most likely tokens{other}, expected {wanted}"))


def check_entry(exact: Any, token: int, entry: TokenLogprobs, context: RequestContext, what: str) -> None:
    """Compare the entry of `token` with the exact log-probabilities of its row."""
    top = context.params.logprobs or 0
    pairs = [(token, entry.sampled), *entry.top]
    for id_, value in pairs:
        if not near(value, exact[id_]):
            message = f"{what}: log-probability {value:.6f} of {id_}, expected {exact[id_]:.6f}"
            raise Mismatch(Failure(Kind.VALUE, message))
    own = [value for _, value in entry.top]
    expected = np.sort(exact)[::-1][:top]
    if len(own) != top or not near(own, expected):
        message = f"{what}: most likely log-probabilities {own}, expected {expected.tolist()}"
        raise Mismatch(Failure(Kind.VALUE, message))

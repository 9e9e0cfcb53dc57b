"""Request parameters under speculation: each applies to every token, accepted, recovered or bonus (contract GEN)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from verispec import fixtures
from verispec.cases import case
from verispec.cases.request_parameters import distribution, processed
from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import GenerationRequest
from verispec.judge import Inconclusive, Kind
from verispec.reference.models import load_tokenizer
from verispec.suites.e2e._huge_top_k import check_huge_top_k
from verispec.suites.e2e._logprobs import Text, check_entries
from verispec.suites.e2e._parameter_cases import DRAWN, drawn_cases, greedy_cases, seeded_cases
from verispec.suites.e2e._parameters import (
    LENGTH,
    Setting,
    TokenShare,
    check_share,
    check_tokens,
    fields,
)
from verispec.suites.e2e._reference_model import greedy_text, greedy_texts, reference_model
from verispec.suites.e2e._setups import ARGMAX, MANY, METHODS, TREE, Load, require

TARGET = fixtures.model("target")
LIMITS = ["temperature", "min-p", "top-k", "top-p"]
DEEP = ["draft_model k=8"]
"""Each draft of a step has processed logits, the later ones too."""
ORDER = ["penalties and limits", "min-p and top-p", "all limits", "everything"]

test_greedy_texts_keep_to_allowed_ids = greedy_cases("GEN-18", ["allowed ids"])
test_long_chains_keep_to_allowed_ids = greedy_cases("GEN-18", ["allowed ids"], DEEP)
test_sampled_texts_keep_to_allowed_ids = drawn_cases("GEN-18", ["allowed ids"])
test_seeds_keep_to_allowed_ids = seeded_cases("GEN-18", ["allowed ids"])

test_greedy_texts_complete_no_bad_word = greedy_cases("GEN-19", ["bad words", "bad words of one token"])
test_long_chains_complete_no_bad_word = greedy_cases("GEN-19", ["bad words", "long bad words"], DEEP)
test_sampled_texts_complete_no_bad_word = drawn_cases("GEN-19", ["bad words"])
test_seeds_complete_no_bad_word = seeded_cases("GEN-19", ["bad words"])

test_greedy_texts_have_min_tokens = greedy_cases("GEN-20", ["min tokens"])
test_long_chains_have_min_tokens = greedy_cases("GEN-20", ["min tokens"], DEEP)
test_sampled_texts_have_min_tokens = drawn_cases("GEN-20", ["min tokens"])
test_seeds_have_min_tokens = seeded_cases("GEN-20", ["min tokens"])

test_greedy_texts_are_biased = greedy_cases("GEN-21", ["logit bias"])
test_long_chains_are_biased = greedy_cases("GEN-21", ["logit bias"], DEEP)
test_sampled_texts_are_biased = drawn_cases("GEN-21", ["logit bias"])
test_seeds_are_biased = seeded_cases("GEN-21", ["logit bias"])

PENALTIES = [
    "presence penalty",
    "negative presence penalty",
    "frequency penalty",
    "repetition penalty",
    "repetition reward",
]
test_greedy_texts_are_penalised = greedy_cases("GEN-22", [*PENALTIES, "penalties"])
test_long_chains_are_penalised = greedy_cases("GEN-22", ["penalties"], DEEP)
test_sampled_texts_are_penalised = drawn_cases("GEN-22", ["repetition reward", "presence penalty"])
test_seeds_are_penalised = seeded_cases("GEN-22", [*PENALTIES, "penalties"])

test_sampled_texts_keep_to_limits = drawn_cases("GEN-23", LIMITS, [*DRAWN, TREE])

test_greedy_texts_combine_parameters = greedy_cases("GEN-24", ["ids, bias and penalties", "everything"])
test_sampled_texts_combine_parameters = drawn_cases("GEN-24", ORDER)
test_limits_combine = drawn_cases("GEN-24", ["top-k and top-p"], [*DRAWN, TREE])
test_limits_of_trees_combine = drawn_cases("GEN-24", ["min-p and top-p"], [TREE])
test_seeds_combine_parameters = seeded_cases("GEN-24", ["ids, bias and penalties"])

GRAMMARS = ["grammar", "grammar and penalties"]
test_greedy_texts_keep_to_a_grammar = greedy_cases("GEN-39", GRAMMARS)
test_long_chains_keep_to_a_grammar = greedy_cases("GEN-39", GRAMMARS, DEEP)
test_sampled_texts_keep_to_a_grammar = drawn_cases("GEN-39", GRAMMARS[:1])
test_seeds_keep_to_a_grammar = seeded_cases("GEN-39", GRAMMARS[:1])


@case(
    "GEN-24",
    target="tiny",
    parameter="grammar and top-k",
    draft=METHODS[:3],
    reach="a sampled request with a grammar and top-k",
)
def test_top_k_keeps_tokens_that_the_grammar_allows(load: Load, tiny: dict[str, Path], seed: int, draft: str) -> None:
    """A top-k before the grammar keeps no allowed token that is not among the most likely of all."""
    setting = Setting.of(draft, tiny, ())
    asked = [
        replace(request, seed=seed % 2**31 + n)
        for n, request in enumerate(setting.requests("grammar and top-k", temperature=2.0))
    ]
    results = load(draft, target=setting.target, drafter=setting.drafter).generate(asked)
    share = TokenShare("tokens are not among the most likely ones before their grammar")
    for n, (request, result) in enumerate(zip(asked, results, strict=True)):
        check_tokens(setting.reference, request, result, f"request {n} with grammar and top-k")
        for place, row in enumerate(setting.reference.logits(request.prompt_token_ids, result.token_ids)):
            law = distribution(processed(row, request, result.token_ids[:place], frozenset()), request)
            share.add(law * (row < np.sort(row)[-request.top_k]), result.token_ids[place])
    share.check()


@case(
    "GEN-39",
    target="tiny",
    draft=METHODS[:2],
    parameter="grammar",
    check="second call",
    reach="requests with the grammar of earlier ones",
)
def test_a_grammar_starts_anew_in_the_next_call(load: Load, tiny: dict[str, Path], draft: str) -> None:
    """Texts of the first call end in other states of the grammar than its start."""
    setting = Setting.of(draft, tiny, ())
    generator = load(setting.draft, target=setting.target, drafter=setting.drafter)
    asked = setting.requests("grammar")
    for call, length in (("first", 1), ("second", LENGTH)):
        requests = [replace(request, max_tokens=length + n % 3) for n, request in enumerate(asked)]
        changed = 0
        for n, (request, result) in enumerate(zip(requests, generator.generate(requests), strict=True)):
            what = f"request {n} of the {call} call with one grammar"
            changed += len(check_tokens(setting.reference, request, result, what))
    if not changed:
        raise Inconclusive("the grammar changed no token")


@case(
    "GEN-23",
    parameter=LIMITS[1:],
    draft=[*METHODS, ARGMAX, TREE],
    reach=lambda params: f"a sampled request with {params['parameter']}",
)
def test_no_token_lies_outside_of_its_limits(load: Load, prompts: Any, seed: int, parameter: str, draft: str) -> None:
    """Texts over 2,048 tokens: requests have the limit at different strengths, and every second request has none.

    Those without one are cold, where their rows leave room for few other tokens than the most likely one.
    """
    strengths: dict[str, list[dict[str, Any]]] = {
        "min-p": [{"min_p": value} for value in (0.05, 0.2, 0.5, 0.9)],
        "top-k": [{"top_k": value} for value in (1, 2, 5, 40)],
        "top-p": [{"top_p": value} for value in (0.16, 0.36, 0.66, 0.96)],
    }
    asked = [
        GenerationRequest(
            prompt[:16],
            max_tokens=48,
            ignore_eos=True,
            temperature=1.0 if n % 2 else 0.25,
            seed=seed % 2**31 + n,
            **(strengths[parameter][n // 2 % 4] if n % 2 else {}),
        )
        for n, prompt in enumerate(prompts[:16])
    ]
    results = load(draft).generate(asked)
    for n, (request, result) in enumerate(zip(asked, results, strict=True)):
        check_tokens(reference_model(TARGET), request, result, f"request {n} with {parameter}")
    check_share(
        reference_model(TARGET),
        list(zip(asked, results, strict=True))[::2],
        lambda rows: rows < rows.max(axis=1, keepdims=True),
        "tokens are not the most likely of their rows",
    )


@case(
    "GEN-23",
    draft=METHODS[:2],
    parameter="limits",
    sampling="greedy",
    reach="a temperature of 0 beside a limit, as clients send that set both",
)
def test_limits_change_no_greedy_text(load: Load, prompts: Any, draft: str) -> None:
    """Greedy requests with one limit each stand between sampled ones, which have limits too."""
    limits: list[dict[str, Any]] = [{"top_p": 0.9}, {"top_k": 30}, {"min_p": 0.02}, {"top_p": 0.95, "top_k": 50}]
    asked = [
        GenerationRequest(
            prompt[:16], max_tokens=32, ignore_eos=True, temperature=(n + 1) % 2, seed=n, **limits[n // 2 % 4]
        )
        for n, prompt in enumerate(prompts[:8])
    ]
    for n, (request, result) in enumerate(zip(asked, load(draft).generate(asked), strict=True)):
        if request.greedy:
            what = f"greedy request {n} with {limits[n // 2 % 4]} among sampled ones"
            reference_model(TARGET).judge_greedy(request.prompt_token_ids, result.token_ids, what)


WIDE: dict[str, dict[str, Any]] = {"top-k": {"top_k": 1500}, "top-p": {"top_p": 0.999}, "min-p": {"min_p": 1e-6}}
RANKS = (64, 256, 1024)
SURE = 30.0
"""Expected number of tokens past a rank from which none at all has a chance of e^-30."""


@case("GEN-23", parameter=list(WIDE), draft=METHODS[:2], check="wide", reach="a limit that keeps many tokens")
def test_wide_limits_keep_rare_tokens(load: Load, prompts: Any, seed: int, parameter: str, draft: str) -> None:
    """Count the tokens past ranks 64, 256 and 1,024 of their rows, where engines cut the survivors of a limit.

    The share past the first of them is also that of the temperature, which an engine may bound.
    """
    asked = [
        GenerationRequest(
            prompt[:8], max_tokens=64, ignore_eos=True, temperature=2.0, seed=seed % 2**31 + n, **WIDE[parameter]
        )
        for n, prompt in enumerate(prompts[:24])
    ]
    expected, seen = dict.fromkeys(RANKS, 0.0), dict.fromkeys(RANKS, 0)
    share = TokenShare(f"tokens are past rank {RANKS[0]} at a temperature of 2")
    for n, (request, result) in enumerate(zip(asked, load(draft).generate(asked), strict=True)):
        check_tokens(reference_model(TARGET), request, result, f"request {n} with {parameter}")
        law = reference_model(TARGET).distributions(request, result.token_ids)
        falling = -np.sort(-law, axis=1)
        for row, least, token in zip(law, falling[:, RANKS[0] - 1], result.token_ids, strict=True):
            share.add(np.where(row < least, row, 0.0), token)
        for rank in RANKS:
            expected[rank] += float(falling[:, rank:].sum())
            own = law[np.arange(len(law)), list(result.token_ids)]
            seen[rank] += int((own < falling[:, rank - 1]).sum())
    judged = [rank for rank in RANKS if expected[rank] >= SURE]
    if not judged:
        raise Inconclusive(f"few tokens past rank {RANKS[0]} are expected: {expected[RANKS[0]]:.1f}")
    for rank in judged:
        message = f"{WIDE[parameter]}: no token past rank {rank}, {expected[rank]:.0f} are expected"
        require(seen[rank] > 0, message, Kind.LAW)
    share.check()


@case("GEN-23", sampler="request_state", check="wide", reach="a limit that keeps many tokens")
def test_wide_limits_of_slots_keep_rare_tokens(load: Load, prompts: Any, seed: int) -> None:
    """Rows are almost flat at a temperature of 60: most tokens are past rank 128 of those that a limit keeps.

    That none of sixteen is has a chance of (128 / 300)^16 = 1e-6 in the narrowest of four requests.
    """
    limits: list[dict[str, Any]] = [{"top_k": 1500}, {"top_k": 300}, {"top_p": 0.95}, {"min_p": 0.6}]
    asked = [
        GenerationRequest(
            prompt[:8], max_tokens=16, ignore_eos=True, temperature=60.0, seed=seed % 2**31 + n, **limits[n]
        )
        for n, prompt in enumerate(prompts[:4])
    ]
    results = load("ngram k=3", sampler="request_state").generate(asked)
    for n, (request, result) in enumerate(zip(asked, results, strict=True)):
        check_tokens(reference_model(TARGET), request, result, f"request {n} with {limits[n]}")
        law = reference_model(TARGET).distributions(request, result.token_ids)
        past = law[np.arange(len(law)), list(result.token_ids)] < -np.sort(-law, axis=1)[:, 127]
        require(bool(past.any()), f"{limits[n]}: no token of request {n} is past rank 128", Kind.LAW)


@case(
    "GEN-23",
    parameter="top-k",
    draft=METHODS[:2],
    sampler=[None, "request_state"],
    check="past 32 bits",
    reach="a request whose top_k is above any vocabulary",
)
def test_a_top_k_past_32_bits_keeps_every_token(
    load: Load, prompts: Any, seed: int, draft: str, sampler: str | None
) -> None:
    """Rows are almost flat at a temperature of 60, where half of the 96 tokens for each number are past rank 1,024.

    An engine may refuse such a number.
    """
    engine = load(draft, sampler=sampler or "flat")
    check_huge_top_k(engine, TARGET, [prompt[:8] for prompt in prompts[:7]], 60.0, 1024, seed)


@case(
    "GEN-23",
    target="tiny",
    parameter="top-k",
    draft=METHODS[:2],
    check="past 32 bits",
    reach="a request whose top_k is above any vocabulary",
)
def test_a_top_k_past_32_bits_keeps_every_token_of_eight(
    load: Load, tiny: dict[str, Path], seed: int, draft: str
) -> None:
    """Engines that end temperatures at 2 emit tokens past rank 3 there, too, if eight are all that there are."""
    engine = load(draft, target=tiny["target"], max_num_seqs=MANY)
    check_huge_top_k(engine, tiny["target"], [(1, 5, n % 8) for n in range(19)], 2.0, 3, seed)


LONG: list[dict[str, Any]] = [
    {},
    {"frequency_penalty": 0.2},
    {},
    {"repetition_penalty": 1.15},
    {"presence_penalty": 0.6},
]


@case("GEN-22", parameter="long output", draft=METHODS[:2], reach="a request with penalties and a long output")
def test_penalties_count_the_whole_output(load: Load, prompts: Any, draft: str) -> None:
    """Outputs of 160 tokens: an engine may count the last 64 tokens alone."""
    asked = [
        GenerationRequest(prompt[:20], max_tokens=160, ignore_eos=True, **penalty)
        for prompt, penalty in zip(prompts, LONG, strict=False)
    ]
    texts = list(zip(asked, load(draft).generate(asked), strict=True))
    for n, (request, result) in enumerate(texts):
        check_tokens(reference_model(TARGET), request, result, f"request {n} with a long output", texts)


@case("GEN-20", parameter="long output", draft=METHODS[:2], reach="a request with min_tokens and many stop tokens")
def test_many_stop_tokens_wait_in_a_long_output(load: Load, prompts: Any, draft: str) -> None:
    """40 stop tokens, most of them likely, are forbidden in 100 tokens and end the output after them."""
    prompt = prompts[0][:20]
    likely = [token for text in greedy_texts(TARGET, [prompt, prompts[0][:40]], LENGTH) for token in text]
    stops = [*dict.fromkeys([*likely, *range(1000, 1040)])][:40]
    request = GenerationRequest(prompt, max_tokens=160, min_tokens=100, stop_token_ids=tuple(stops))
    [result] = load(draft).generate([request])
    check_tokens(reference_model(TARGET), request, result, "a request with a long output")


@case(
    "GEN-22", parameter="long prompt", draft=METHODS[:2], reach="a request with a repetition penalty and a long prompt"
)
def test_penalties_count_the_whole_prompt(load: Load, prompts: Any, draft: str) -> None:
    """The tokens that the target would choose stand at the start of 500, and nowhere else in the prompt."""
    asked = []
    rest = [token for text in prompts[6:14] for token in text]
    texts = greedy_texts(TARGET, [(*rest, *prompt[:20]) for prompt in prompts[:4]], LENGTH)
    for n, (prompt, own) in enumerate(zip(prompts[:4], texts, strict=True)):
        others = [token for token in rest if token not in own]
        whole = (*own, *others, *(token for token in prompt[:20] if token not in own))
        penalty: dict[str, Any] = {"repetition_penalty": 1.3} if n % 2 else {}
        asked.append(GenerationRequest(whole, max_tokens=LENGTH, ignore_eos=True, **penalty))
    answered = list(zip(asked, load(draft).generate(asked), strict=True))
    for n, (request, result) in enumerate(answered):
        check_tokens(reference_model(TARGET), request, result, f"request {n} with a long prompt", answered)


@case(
    "GEN-22",
    parameter="first token",
    draft=METHODS[2:3],
    reach="a request with a repetition penalty and a short prompt",
)
def test_penalties_count_no_rejected_draft(load: Load, prompts: Any, draft: str) -> None:
    """Prompts of one token: an engine that leaves a prompt out still shows which drafts it counts."""
    asked = [
        GenerationRequest(prompt[:1], max_tokens=LENGTH, ignore_eos=True, repetition_penalty=penalty)
        for prompt, penalty in zip(prompts, (1.3, 0.8), strict=False)
    ]
    texts = list(zip(asked, load(draft).generate(asked), strict=True))
    for n, (request, result) in enumerate(texts):
        check_tokens(reference_model(TARGET), request, result, f"request {n} with a prompt of one token", texts)


SEVERAL = [
    "penalties",
    "bad words",
    "min tokens",
    "logit bias",
    "grammar",
    "allowed ids",
    "frequency penalty",
    "everything",
]


def with_parameters(prompts: Any, length: int, **common: Any) -> list[GenerationRequest]:
    """Return one request for each of `SEVERAL` parameters, made from the target's own text."""
    chosen = prompts[: len(SEVERAL)]
    return [
        GenerationRequest(
            prompt,
            **{"max_tokens": length, "ignore_eos": True, **common, **fields(name, text)},
        )
        for name, prompt, text in zip(SEVERAL, chosen, greedy_texts(TARGET, chosen, length), strict=True)
    ]


@case(
    "GEN-4",
    memory="preemption",
    parameter="one for each request",
    draft=["draft_model k=3"],
    reach="more requests with parameters than the KV cache holds",
)
def test_a_preempted_request_keeps_its_parameters(load: Load, prompts: Any, draft: str) -> None:
    """Tokens from before a preemption still count for the penalties, words, limits and grammar of their request."""
    asked = with_parameters(prompts, 40)
    results = load(draft, "preemption").generate(asked)
    if not any(result.preemptions for result in results):
        raise UnsupportedCall("the engine does not report preemptions")
    for name, request, result in zip(SEVERAL, asked, results, strict=True):
        check_tokens(
            reference_model(TARGET), request, result, f"the request with {name}, {result.preemptions} times preempted,"
        )


READING = ("penalties", "bad words", "min tokens", "frequency penalty")
"""Parameters that read the tokens of a request."""


@case(
    "GEN-3",
    parameter="one for each request",
    batch="plain ones",
    draft=["none", "draft_model k=3"],
    reach="a request with parameters that starts beside others without any",
)
def test_a_request_with_parameters_joins_plain_ones(load: Load, prompts: Any, draft: str) -> None:
    """Two requests run at a time: a long plain one, and beside it short plain ones and ones with parameters in turn.

    An engine may keep the tokens that parameters read only while a request in its batch has parameters.
    """
    names, asked = ["the long plain request"], [GenerationRequest(prompts[8][:16], max_tokens=80, ignore_eos=True)]
    for name, request in zip(SEVERAL, with_parameters(prompts, 12), strict=True):
        if name not in READING:
            continue
        names += [f"the plain request before that with {name}", f"the request with {name}"]
        asked += [GenerationRequest(request.prompt_token_ids[:16], max_tokens=3, ignore_eos=True), request]
    results = load(draft, max_num_seqs=2).generate(asked)
    for name, request, result in zip(names, asked, results, strict=True):
        check_tokens(reference_model(TARGET), request, result, name)


@case("GEN-33", parameter="one for each request", draft=["draft_model k=3"], reach="a request with n above 1")
def test_every_sample_has_the_parameters(load: Load, prompts: Any, draft: str) -> None:
    """Three samples of each request, at a top-k of 1, so that every token is known; with log-probabilities of each.

    The samples of the last request differ, so that each shows whose log-probabilities it has.
    """
    asked = [
        replace(request, top_k=1, top_p=1.0)
        for request in with_parameters(prompts, 16, temperature=0.8, seed=5, n=3, logprobs=1)
    ]
    decode = load_tokenizer(TARGET).decode
    stop = decode(greedy_text(TARGET, prompts[0], 16))[12:16]
    asked.append(replace(asked[0], repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0, stop=(stop,)))
    asked.append(GenerationRequest(prompts[8], 8, ignore_eos=True, temperature=2.0, seed=5, n=3, logprobs=1))
    names = [*SEVERAL, "a stop string", "no parameter"]
    for name, request, result in zip(names, asked, load(draft).generate(asked), strict=True):
        require(len(result.samples) == 2, f"the request with {name} has {1 + len(result.samples)} samples, expected 3")
        for n, sample in enumerate((result, *result.samples)):
            what = f"sample {n} of the request with {name}"
            told = len(sample.logprobs)
            require(
                told == len(sample.token_ids), f"{what} has {told} log-probabilities, {len(sample.token_ids)} tokens"
            )
            if request.stop:
                wanted, found, _ = decode(sample.token_ids, skip_special_tokens=True).partition(stop)
                require(sample.text == wanted, f"{what} has the text {sample.text!r}, expected {wanted!r}")
                require(bool(found) or len(sample.token_ids) == 16, f"{what} ended without {stop!r}")
                continue
            check_tokens(reference_model(TARGET), request, sample, what)
            if not request.top_k:
                own = Text(what, reference_model(TARGET), request, sample.token_ids)
                check_entries(own, sample.logprobs, "raw")

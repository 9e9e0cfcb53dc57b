"""Further features of a request: stop strings, samples, aborts, the same prompt again (contract GEN)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from verispec import fixtures
from verispec.cases import case
from verispec.engines.protocol.generation import FinishReason, GenerationRequest, GenerationResult, Generator
from verispec.judge import Inconclusive, Kind, Mismatch
from verispec.judge.resources import assert_nothing_kept
from verispec.judge.statistics import assert_distribution, fits
from verispec.reference.models import load_tokenizer
from verispec.suites.e2e._miscounts import offsets
from verispec.suites.e2e._parameters import check_tokens, fields, sequence_distribution
from verispec.suites.e2e._reference_model import Array, greedy_text, reference_model
from verispec.suites.e2e._sequences import sequence_names
from verispec.suites.e2e._setups import MANY, METHODS, TREE, Load, NotTold, greedy, require, sampled_in_parts
from verispec.suites.e2e._tiny import EOS, VOCAB

TARGET = fixtures.model("target")
LENGTH = 40
ABSENT = ("\0", "\0\0", "\1")
"""Stop strings that no text contains; four are what many servers take."""


@case("GEN-32", draft=[*METHODS, TREE], reach="a request with stop strings")
def test_text_ends_before_its_first_stop_string(load: Load, prompts: Any, draft: str) -> None:
    """Stop strings reach over token boundaries at many offsets, before any end-of-sequence token, which has no text.

    The string that occurs stands first among the request's stop strings, or last of four and is longer.
    """
    tokenizer = load_tokenizer(TARGET)
    asked = []
    for prompt in prompts[:3]:
        own = greedy_text(TARGET, prompt, LENGTH)
        text = tokenizer.decode(own[: own.index(EOS)] if EOS in own else own)
        asked += greedy([prompt], 8)
        asked += [
            GenerationRequest(
                prompt,
                max_tokens=LENGTH,
                ignore_eos=True,
                stop=(text[place : place + 4], *ABSENT) if place % 2 else (*ABSENT, text[place : place + 16]),
            )
            for place in range(10, min(len(text) - 4, 60), 5)
        ]
    results = load(draft).generate(asked)
    try:
        for n, (request, result) in enumerate(zip(asked, results, strict=True)):
            if request.stop:
                decoded = tokenizer.decode(result.token_ids, skip_special_tokens=True)
                check_stop(request, result, decoded, f"request {n}")
    except Mismatch as mismatch:
        if not _are_over_steps(asked, results, tokenizer):
            raise
        message = f"{mismatch.failure.message}; only stop strings over the tokens of several steps are missed"
        raise Mismatch(replace(mismatch.failure, message=message)) from mismatch


def _are_over_steps(asked: Sequence[GenerationRequest], results: Sequence[GenerationResult], tokenizer: Any) -> bool:
    """Return True if the tokens of every missed stop string are of several steps, and not those of all others."""
    missed: list[bool] = []
    found: list[bool] = []
    for request, result in zip(asked, results, strict=True):
        tokens, stops = result.token_ids, [stop for stop in request.stop if stop not in ABSENT]
        ends = [
            end for end in range(1, len(tokens) + 1) if any(stop in tokenizer.decode(tokens[:end]) for stop in stops)
        ]
        if ends:
            begins = range(ends[0] - 1, -1, -1)
            parts = ((begin, tokenizer.decode(tokens[begin : ends[0]])) for begin in begins)
            begin = next((begin for begin, part in parts if any(stop in part for stop in stops)), 0)
            places = offsets(result)
            is_over = not places or 0 in places[begin + 1 : ends[0]]
            (found if result.finish_reason is FinishReason.STOP else missed).append(is_over)
    return bool(missed and found) and all(missed) and not all(found)


def check_stop(request: GenerationRequest, result: GenerationResult, decoded: str, what: str) -> None:
    """Check that the text is the decoded output up to the stop string, and that its tokens are the target's."""
    reference_model(TARGET).judge_greedy(request.prompt_token_ids, result.token_ids, what)
    [stop] = [text for text in request.stop if text not in ABSENT]
    if stop not in decoded:
        require(len(result.token_ids) == LENGTH, f"{what} ended after {len(result.token_ids)} tokens without {stop!r}")
        return
    expected = decoded.partition(stop)[0]
    require(result.text == expected, f"{what} has the text {result.text!r}, expected {expected!r} before {stop!r}")
    require(result.finish_reason is FinishReason.STOP, f"{what} finished by {result.finish_reason}, expected stop")


@case("GEN-32", draft=[*METHODS, TREE], check="last token", reach="a request with stop strings")
def test_the_last_token_completes_the_stop_string(load: Load, prompts: Any, draft: str) -> None:
    """No token follows the one that completes the stop string, though a step may emit several at once."""
    tokenizer = load_tokenizer(TARGET)
    prompt = prompts[0]
    own = greedy_text(TARGET, prompt, LENGTH)
    text = tokenizer.decode(own[: own.index(EOS)] if EOS in own else own)
    stops = [text[place : place + 3] for place in range(6, min(len(text) - 3, 70), 4)]
    asked = [GenerationRequest(prompt, LENGTH, ignore_eos=True, stop=(stop,)) for stop in stops]
    for n, (stop, result) in enumerate(zip(stops, load(draft).generate(asked), strict=True)):
        counts = range(1, len(result.token_ids) + 1)
        texts = (tokenizer.decode(result.token_ids[:count], skip_special_tokens=True) for count in counts)
        completed = next((count for count, known in zip(counts, texts, strict=True) if stop in known), counts[-1])
        message = f"request {n} has {counts[-1]} tokens, of which {completed} complete its stop string {stop!r}"
        require(completed == counts[-1], message)


@case("GEN-32", draft=["none", "draft_model k=3"], stop="two in one token", reach="a request with several stop strings")
def test_text_ends_before_the_first_of_two_stop_strings(load: Load, prompts: Any, draft: str) -> None:
    """One token completes two stop strings, one after the other, which the request lists in both orders."""
    tokenizer = load_tokenizer(TARGET)
    asked, wanted = [], []
    for prompt in prompts[:4]:
        for before, *stops in pairs_of_stops(tokenizer.decode, greedy_text(TARGET, prompt, LENGTH)):
            asked += [GenerationRequest(prompt, LENGTH, stop=tuple(order)) for order in (stops, stops[::-1])]
            wanted += [before] * 2
    if not asked:
        raise Inconclusive("no token completes two stop strings")
    for n, (request, expected, result) in enumerate(zip(asked, wanted, load(draft).generate(asked), strict=True)):
        what = f"request {n} with the stop strings {list(request.stop)}"
        reference_model(TARGET).judge_greedy(request.prompt_token_ids, result.token_ids, what)
        own = greedy_text(TARGET, request.prompt_token_ids, LENGTH)
        if result.token_ids == own[: len(result.token_ids)]:  # A tie within rounding leads to another text.
            require(result.text == expected, f"{what} has the text {result.text!r}, expected {expected!r}")


@case("GEN-32", draft=["none", "draft_model k=3"], stop="before max_tokens", reach="a request with stop strings")
def test_a_stop_string_ends_the_text_before_max_tokens_does(load: Load, prompts: Any, draft: str) -> None:
    """The string is complete with the last token that max_tokens allows, or one to three tokens before it.

    A step whose drafts are accepted has the end of the string and that last token.
    """
    tokenizer = load_tokenizer(TARGET)
    asked, wanted = [], []
    for prompt in prompts[:4]:
        own = greedy_text(TARGET, prompt, LENGTH)
        for end in range(4, own.index(EOS) if EOS in own else LENGTH, 3):
            known, text = tokenizer.decode(own[: end - 1]), tokenizer.decode(own[:end])
            stop = text[-3:]
            if stop in known or "\ufffd" in stop or text == known:
                continue
            asked += [GenerationRequest(prompt, end + more, ignore_eos=True, stop=(stop,)) for more in range(4)]
            wanted += [(own[:end], text[:-3])] * 4
    for n, (request, (tokens, text), result) in enumerate(zip(asked, wanted, load(draft).generate(asked), strict=True)):
        what = f"request {n} with max_tokens {request.max_tokens} and the stop string {request.stop[0]!r}"
        reference_model(TARGET).judge_greedy(request.prompt_token_ids, result.token_ids, what)
        if result.token_ids[: len(tokens)] != tokens:  # A tie within rounding leads to another text.
            continue
        ended = f"{what}, which token {len(tokens)} completes,"
        emitted = len(result.token_ids)
        require(emitted == len(tokens), f"{ended} ended after {emitted} tokens by {result.finish_reason}")
        require(result.text == text, f"{ended} has the text {result.text!r}, expected {text!r}")
        reason = result.finish_reason
        require(reason is FinishReason.STOP, f"{ended} finished by {reason}, expected {FinishReason.STOP}")


@case("GEN-32", draft=["none", "draft_model k=3"], stop="begins in the prompt", reach="a request with stop strings")
def test_a_stop_string_lies_in_the_output(load: Load, prompts: Any, draft: str) -> None:
    """The last character of the prompt and the first ones of the output would be a stop string, which ends nothing."""
    tokenizer = load_tokenizer(TARGET)
    asked = []
    for prompt in prompts[:4]:
        text = tokenizer.decode(greedy_text(TARGET, prompt, LENGTH), skip_special_tokens=True)
        before = tokenizer.decode(prompt[-1:])
        stop = before[-1:] + text[:3]
        if before and text and stop not in text and "\ufffd" not in stop:
            asked.append(GenerationRequest(prompt, LENGTH, ignore_eos=True, stop=(stop,)))
    if not asked:
        raise Inconclusive("every such string stands in the output too")
    for n, (request, result) in enumerate(zip(asked, load(draft).generate(asked), strict=True)):
        check_stop(request, result, tokenizer.decode(result.token_ids, skip_special_tokens=True), f"request {n}")


def pairs_of_stops(decode: Callable[[Sequence[int]], str], tokens: Sequence[int]) -> list[tuple[str, str, str]]:
    """Return pairs of strings that one token completes, each in its order and after the text before it."""
    found = []
    for place in range(4, tokens.index(EOS) if EOS in tokens else len(tokens)):
        known, text = decode(tokens[:place]), decode(tokens[: place + 1])
        cut = len(known) + 1
        first, second = text[cut - 4 : cut], text[cut:]
        if len(second) > 1 and text.find(first) == cut - 4 and text.find(second) == cut:
            found.append((text[: cut - 4], first, second))
    return found


@case("GEN-33", target="tiny", draft=[*METHODS[:3], TREE], reach="a request with n above 1", p_values=2)
def test_samples_are_independent(load: Load, tiny: dict[str, Path], seed: int, draft: str) -> None:
    """Up to 600 requests of five samples: sequences have their exact probabilities, first tokens of two the product.

    Every third request has a seed, from which its samples must differ too.
    """
    request = GenerationRequest((1, 5, 2), max_tokens=6, ignore_eos=True, temperature=1.5, n=5)
    asked = [
        GenerationRequest(
            request.prompt_token_ids,
            max_tokens=6,
            ignore_eos=True,
            temperature=1.5,
            n=5,
            seed=seed % 2**31 + 100 * n if n % 3 == 0 else None,
        )
        for n in range(600)
    ]
    drafter = tiny["draft"] if draft.startswith("draft_model") else None
    generator = load(draft, target=tiny["target"], drafter=drafter, max_num_seqs=MANY)
    exact = sequence_distribution(reference_model(tiny["target"]), request)
    first_token = exact.sum(axis=(1, 2))
    product = np.outer(first_token, first_token).ravel()

    def tables(results: Sequence[GenerationResult]) -> tuple[Array, Array, Array]:
        """Return the counts of sequences, of pairs of first tokens, and of equal samples of a request with a seed."""
        counts, pairs = np.zeros((VOCAB,) * 3, dtype=np.int64), np.zeros((VOCAB, VOCAB), dtype=np.int64)
        equal = np.zeros((request.n, request.n), dtype=np.int64)
        for n, result in enumerate(results):
            texts = [sample.token_ids for sample in (result, *result.samples)]
            require(len(texts) == request.n, f"request {n} has {len(texts)} samples, expected {request.n}")
            for text in texts:
                counts[text[:3]] += 1
            for first, second in zip(texts[::2], texts[1::2], strict=False):
                pairs[first[0], second[0]] += 1
            if n % 3 == 0:
                equal += [[one == other for other in texts] for one in texts]
        np.fill_diagonal(equal, 0)
        return counts.ravel(), pairs.ravel(), equal

    def fit(results: Sequence[GenerationResult], part: float) -> bool:
        counts, pairs, _ = tables(results)
        return fits(counts, exact.ravel(), part) and fits(pairs, product, part)

    results = sampled_in_parts(generator, asked, fit)
    counts, pairs, equal = tables(results)
    one, other = np.unravel_index(equal.argmax(), equal.shape)
    seeded = len(results) // 3
    again = f"samples {one} and {other} are equal in {equal.max()} of {seeded} requests with a seed"
    require(bool(2 * equal.max() < seeded), f"{again}, expected none or few", Kind.LAW)
    what = "sequences of three tokens of all samples"
    assert_distribution(counts.tolist(), exact.ravel(), what, sequence_names())
    assert_distribution(pairs.tolist(), product, "first tokens of two samples", sequence_names(tokens=2))


@case("GEN-33", draft=METHODS[:2], seeds=[None, "below 0"], check="count", reach="a request with n above 1")
def test_every_number_of_samples_is_answered(load: Load, prompts: Any, seeds: str | None, draft: str) -> None:
    """Requests of one to four and of nine samples in one batch; at a temperature of 2 no two of a request are equal.

    The last two have the seed 0, or all have seeds below -1, which alone may ask for any seed.
    """
    check_samples(load(draft), prompts, [-10, -20, -30, -40, -50] if seeds else [3, 2, 1, 0, 0])


@case("GEN-33", draft=METHODS[:2], sampler="request_state", check="places", reach="a request with n above 1")
def test_samples_that_follow_each_other_in_two_places_differ(load: Load, prompts: Any, draft: str) -> None:
    check_samples(load(draft, sampler="request_state", max_num_seqs=2), prompts, [3, 2, 1, 0, 0])


def check_samples(generator: Generator, prompts: Any, seeds: Sequence[int]) -> None:
    """Check that all samples of requests for one to four and for nine of them are there, and differ."""
    asked = [
        GenerationRequest(prompts[n][:8], max_tokens=6, ignore_eos=True, temperature=2.0, n=samples, seed=seeds[n])
        for n, samples in enumerate((1, 2, 3, 4, 9))
    ]
    for request, result in zip(asked, generator.generate(asked), strict=True):
        samples = (result, *result.samples)
        texts = {sample.token_ids for sample in samples}
        what = f"a request of {request.n} samples"
        require(len(texts) == len(samples) == request.n, f"{what} has {len(samples)}, {len(texts)} of them different")


@case("GEN-34", draft=[*METHODS, TREE], memory="preemption", reach="a client that disconnects")
def test_aborts_change_nothing_else(load: Load, prompts: Any, draft: str) -> None:
    """Requests are aborted in the middle of others, twelve times as many as fit into memory; the others go on."""
    generator = load(draft, "preemption")
    for round_ in range(3):
        asked = greedy(prompts[:8], LENGTH)
        for n in (1, 2, 4, 7):
            asked[n] = GenerationRequest(prompts[n], max_tokens=LENGTH, ignore_eos=True, abort_after=2 + 3 * n)
        for n, (request, result) in enumerate(zip(asked, generator.generate(asked), strict=True)):
            what = f"request {n} of round {round_}"
            reference_model(TARGET).judge_greedy(request.prompt_token_ids, result.token_ids, what)
            wanted = FinishReason.LENGTH if request.abort_after is None else FinishReason.ABORT
            require(result.finish_reason is wanted, f"{what} finished by {result.finish_reason}, expected {wanted}")
            least = request.abort_after or LENGTH
            require(len(result.token_ids) >= least, f"{what} has {len(result.token_ids)} tokens, expected {least}")


CALLS, KEPT = 12, 512 << 10
"""Calls of a round of ANY-10, and bytes that each may keep: a fifth of the keys and values of its requests."""


@case("ANY-10", draft=["none", "draft_model k=3"], quick=False, reach="a server that runs for days")
def test_calls_keep_nothing(load: Load, prompts: Any, draft: str) -> None:
    """The same four requests again and again, so that no cache of prompts grows."""
    generator, asked = load(draft), greedy(prompts[:4], 4)
    assert_nothing_kept(lambda: generator.generate(asked), CALLS, KEPT)


@case("GEN-35", draft=METHODS, parameter=["none", "penalties"], reach="a prompt that was sent before")
def test_a_prompt_that_was_seen_gives_the_same_text(load: Load, prompts: Any, draft: str, parameter: str) -> None:
    """Prompts of 33, 129 and 150 tokens are sent three times, alone and among others: a block more than one is cached.

    Schedulers pad drafts with -1 after a hit in their prefix cache.
    """
    common: dict[str, Any] = {"max_tokens": 12, "ignore_eos": True, "seed": 3}
    if parameter == "penalties":
        common |= {"repetition_penalty": 1.2, "presence_penalty": 0.5}
    generator, long = load(draft), (*prompts[0], *prompts[1], *prompts[2])
    asked = [
        GenerationRequest(long[start : start + length], temperature=heat, **common)
        for start, length, heat in ((0, 129, 0.0), (0, 150, 0.9), (7, 33, 0.0), (0, 129, 0.9), (0, 150, 0.0))
    ]
    for round_ in range(3):
        batches = [asked, asked[::-1], *([request] for request in asked[:2])][round_ : round_ + 2]
        for batch in batches:
            for n, (request, result) in enumerate(zip(batch, generator.generate(batch), strict=True)):
                try:
                    check_tokens(reference_model(TARGET), request, result, f"request {n} of round {round_}")
                except Mismatch as mismatch:
                    words = right_in_a_new_engine(load, draft, request)
                    raise Mismatch(replace(mismatch.failure, message=f"{mismatch.failure.message}{words}")) from None


def right_in_a_new_engine(load: Load, draft: str, request: GenerationRequest) -> str:
    """Return words if a request is right in an engine that has had no prompt yet."""
    with suppress(Exception):  # the failure that is known tells more
        [result] = load(draft, seed=35).generate([request])
        check_tokens(reference_model(TARGET), request, result, "the request")
        return "; it is right in an engine that has had no other prompt"
    return ""


def late_word(request: GenerationRequest, result: GenerationResult) -> str:
    """Return words for a text with a forbidden word that began with accepted drafts of the step before its end."""
    ends, tokens = np.cumsum([step.accepted + 1 for step in result.steps]), result.token_ids
    for word in request.bad_words:
        for last in range(len(word) - 1, len(tokens) if len(ends) else 0):
            step = int(np.searchsorted(ends, last, side="right"))
            begin = last - len(word) + 1
            if tokens[begin : last + 1] == tuple(word) and step > 0 and begin < ends[step - 1] - 1:
                return "; the word begins with drafts that an earlier step accepted, and ends in a later one"
    return ""


@case("GEN-36", draft=METHODS[1:], parameter="async scheduling", reach="async_scheduling is an accepted option")
def test_async_scheduling_changes_no_text(load: Load, prompts: Any, draft: str) -> None:
    """Greedy requests, with penalties, bad words and stop tokens and without, which need the last tokens at once.

    Those are all tokens of the step before, its accepted drafts too.
    """
    generator = load(draft, async_scheduling=True)
    own = [greedy_text(TARGET, prompt, LENGTH) for prompt in prompts[:6]]
    asked = greedy(prompts[:6], LENGTH)
    asked[1] = GenerationRequest(prompts[1], max_tokens=LENGTH, ignore_eos=True, repetition_penalty=1.3)
    asked[2] = GenerationRequest(prompts[2], max_tokens=LENGTH, ignore_eos=True, **fields("bad words", own[2]))
    asked[3] = GenerationRequest(prompts[3], max_tokens=LENGTH, **fields("min tokens", own[3]))
    asked[4] = GenerationRequest(prompts[4], max_tokens=7, ignore_eos=True, presence_penalty=0.8)
    # A word's tokens are those of one step, or of two, the last of which is the newest one.
    asked += [
        GenerationRequest(prompt, max_tokens=place + 8, ignore_eos=True, bad_words=(tuple(text[place : place + size]),))
        for prompt, text in zip(prompts[:6], own, strict=True)
        for size, place in ((3, 4), (4, 7), (5, 11), (3, 14), (4, 17), (5, 20))
    ]
    penalties: list[dict[str, Any]] = [
        {"frequency_penalty": 0.6},
        {"presence_penalty": 1.5},
        {"repetition_penalty": 1.6},
    ]
    asked += [
        GenerationRequest(prompt, max_tokens=LENGTH, ignore_eos=True, **penalty)
        for prompt in prompts[:6]
        for penalty in penalties
    ]
    accepted = 0
    for n, (request, result) in enumerate(zip(asked, generator.generate(asked), strict=True)):
        try:
            check_tokens(reference_model(TARGET), request, result, f"request {n}")
        except Mismatch as mismatch:
            message = f"{mismatch.failure.message}{late_word(request, result)}"
            raise Mismatch(replace(mismatch.failure, message=message)) from mismatch
        accepted += sum(step.accepted for step in result.steps)
    if not generator.metrics().num_drafts:
        raise NotTold("the engine does not count drafts")
    if not accepted and not generator.metrics().num_accepted_tokens:
        raise Inconclusive("no draft was accepted")

"""The form of a server's answers: streams, log-probabilities, seeds, samples (contract SRV)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from verispec.cases import case
from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import GenerationRequest
from verispec.engines.protocol.serving import Answer, Choice
from verispec.judge import Failure, Inconclusive, Kind, Mismatch
from verispec.judge.statistics import binomial_tail
from verispec.judge.statistics.budget import p_value_level
from verispec.judge.statistics.text import GivenText
from verispec.judge.statistics.trial import Trial
from verispec.suites.e2e._served import ServedModel, before_first, is_cut, tokens_of
from verispec.suites.e2e._served_logprobs import check_answer, check_prompt
from verispec.suites.e2e._setups import require

LENGTH = 24
PROMPTS = 6
DRAWN = 8
"""Tokens of an answer with a seed that is compared with another: rounding moves few draws of a short one."""
PAIRS = 16
"""Such answers; at float32 all of them differ by rounding with a probability below 1e-14."""
DECISIONS = 8
"""Draws for one emitted token at K = 3: each of three drafts is drawn and verified, and the last token is drawn."""
SURE = -0.05
"""Log-probability of a token that nearly every draw gives."""
FORMS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 0.9, "seed": 11},
    "logprobs": {"logprobs": 2},
    "samples": {"temperature": 0.9, "seed": 5, "n": 2},
    "stop": {},
    "characters": {},
}


@case("SRV-5", form=list(FORMS), reach="stream=true", p_values=1)
def test_a_stream_is_the_answer_in_one_piece(served: ServedModel, form: str) -> None:
    """Each request is sent alone, once in each way. A changed tie or draw within rounding is no difference."""
    drawn = "seed" in FORMS[form]
    prompts = (
        served.characters() if form == "characters" else served.prompts(PAIRS if drawn else PROMPTS, repeated=True)
    )
    asked = [GenerationRequest(prompt, max_tokens=DRAWN if drawn else LENGTH, **FORMS[form]) for prompt in prompts]
    if form == "stop":
        texts = [served.server.ask([request])[0].choices[0].text for request in asked]
        asked = [replace(request, stop=(_stop_string(text),)) for request, text in zip(asked, texts, strict=True)]
    differing = []
    for n, request in enumerate(asked):
        [whole], [streamed] = served.server.ask([request]), served.server.ask([request], stream=True)
        what = f"streamed request {n}"
        require(streamed.ended, f"{what} closed without its end mark [DONE]")
        require(len(streamed.choices) == len(whole.choices), f"{what} has {len(streamed.choices)} samples")
        for index, (one, other) in enumerate(zip(whole.choices, streamed.choices, strict=True)):
            require(not other.late, f"{what}, sample {index}: text or tokens came after its finish reason")
            if request.stop:
                require(request.stop[0] not in other.text, f"{what} sent its stop string: {other.text!r}")
            if _differ(one, other):
                cut = is_cut(other, one) and other.finish_reason == "length"
                require(not cut, f"{what}, sample {index} lacks {one.text[len(other.text) :]!r} at its end")
                differing.append((request, one, other))
                continue
            _require_same(one, other, f"{what}, sample {index}", _slack(served, request, one))
        for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
            counts = getattr(whole, name), getattr(streamed, name)
            same = None in counts or counts[0] == counts[1] or bool(differing)
            require(same, f"{what} has {name} {counts[1]}, in one piece {counts[0]}")
    _require_rounding(served, differing, sum(request.n for request in asked))


def _differ(one: Choice, other: Choice) -> bool:
    """Compare two answers by their tokens if both report them, otherwise by their texts."""
    if one.token_ids is None or other.token_ids is None:
        return one.text != other.text
    return one.token_ids != other.token_ids


def _stop_string(text: str) -> str:
    """Return four letters out of the middle of an answer."""
    if len(text) < 12:
        raise Inconclusive("the texts are too short to be stopped")
    return text[len(text) // 2 : len(text) // 2 + 4]


def _slack(served: ServedModel, request: GenerationRequest, choice: Choice) -> float:
    """Two runs of one request differ by rounding alone; without log-probabilities nothing is compared."""
    if request.logprobs is None or not choice.token_ids:
        return 0.0
    return 2 * served.rows(request.prompt_token_ids, choice.token_ids)[1]


def _require_same(one: Choice, other: Choice, what: str, slack: float) -> None:
    require(other.text == one.text, f"{what} has the text {other.text!r}, in one piece {one.text!r}")
    require(
        other.finish_reason == one.finish_reason,
        f"{what} finished by {other.finish_reason!r}, in one piece by {one.finish_reason!r}",
    )
    require(
        len(one.logprobs) == len(other.logprobs),
        f"{what} has {len(other.logprobs)} log-probabilities, in one piece {len(one.logprobs)}",
    )
    for place, (a, b) in enumerate(zip(one.logprobs, other.logprobs, strict=True)):
        off = abs(a.sampled - b.sampled)
        require(off <= slack, f"{what}, token {place}: log-probability {b.sampled:.5f}, in one piece {a.sampled:.5f}")


def _require_rounding(
    served: ServedModel, differing: Sequence[tuple[GenerationRequest, Choice, Choice]], trials: int
) -> None:
    """Check answers that should be equal and are not: ties of greedy ones, and how many draws rounding may move."""
    drawn, chance = 0, 0.0
    first = ""
    for request, one, other in differing:
        if request.greedy:
            for choice in (one, other):
                served.judge_greedy(request, choice, "one of two equal requests")
            continue
        drawn += 1
        first = first or f"{_start(one)} and {_start(other)}"
        rounding = served.rows(request.prompt_token_ids, tokens_of(one))[1] / 2
        chance = max(chance, len(tokens_of(one)) * DECISIONS * rounding / request.temperature)
    if not drawn:
        return
    p = binomial_tail(drawn, trials, min(chance, 1.0))
    what = f"{drawn} of {trials} pairs of equal requests with a seed differ"
    level = p_value_level()
    if p >= level:
        raise Inconclusive(f"{what}; rounding explains that many with a probability of {p:.2g}")
    details = {"p": p, "alpha": level}
    raise Mismatch(Failure(Kind.RELATION, f"{what}, the first: {first}", wrong=drawn, total=trials, details=details))


def _start(choice: Choice) -> str:
    return f"{choice.text[:40]!r}"


@case("SRV-6", sampling=["greedy", "sampled"], reach="a request with logprobs")
def test_logprobs_are_the_models_own(served: ServedModel, sampling: str) -> None:
    """Log-probabilities of the model before temperature, with up to three of the most likely tokens."""
    if not served.server.most_logprobs:
        raise UnsupportedCall("the server reports no log-probabilities")
    heat: dict[str, Any] = {"temperature": 0.7} if sampling == "sampled" else {}
    asked = [
        GenerationRequest(prompt, max_tokens=LENGTH, logprobs=n % 4, seed=n, **heat)
        for n, prompt in enumerate(served.prompts(PROMPTS, repeated=True))
    ]
    for n, (request, answer) in enumerate(zip(asked, served.server.ask(asked), strict=True)):
        check_answer(served, request, answer.choices[0], f"request {n}")


@case("SRV-6", stop="strings", reach="a request with logprobs and a stop string")
def test_logprobs_before_a_stop_string_are_the_models_own(served: ServedModel) -> None:
    """A stop string ends a block of accepted drafts at any token. Servers differ in whether its tokens have entries."""
    if not served.server.most_logprobs:
        raise UnsupportedCall("the server reports no log-probabilities")
    asked = [
        GenerationRequest(prompt, max_tokens=LENGTH, logprobs=n % 4)
        for n, prompt in enumerate(served.prompts(PROMPTS, repeated=True))
    ]
    texts = [answer.choices[0].text for answer in served.server.ask(asked)]
    asked = [replace(request, stop=(_stop_string(text),)) for request, text in zip(asked, texts, strict=True)]
    compared = 0
    for n, (request, answer) in enumerate(zip(asked, served.server.ask(asked), strict=True)):
        [choice] = answer.choices
        count = min(len(tokens_of(choice)), len(choice.logprobs))
        if not count:
            continue
        compared += 1
        told = replace(choice, token_ids=tokens_of(choice)[:count], logprobs=choice.logprobs[:count])
        check_answer(served, request, told, f"request {n} with a stop string")
    require(compared > 0, "no answer that a stop string ended has a log-probability")


@case("SRV-6", sampling="prompt", reach="a request with prompt_logprobs")
def test_logprobs_of_a_prompt_are_the_models_own(served: ServedModel) -> None:
    """The second time, a server that keeps prefixes has met every token of the prompts."""
    asked = [GenerationRequest(prompt, max_tokens=2, prompt_logprobs=n) for n, prompt in enumerate(served.prompts(3))]
    for time in ("", ", asked again"):
        for n, (request, answer) in enumerate(zip(asked, served.server.ask(asked), strict=True)):
            check_prompt(served, request, answer.prompt_logprobs, f"request {n}{time}")


@case("SRV-7", others=["none", "31"], reach="a request with a seed", p_values=1)
def test_a_seed_gives_the_same_answer(served: ServedModel, others: str) -> None:
    """Sixteen prompts with a seed, sent twice: the second time alone, or among requests that come to 32 in flight.

    Every second seed is 0, which counts as any other.
    """
    asked = [
        GenerationRequest(prompt, max_tokens=DRAWN, temperature=1.0, seed=(40 + n) * (n % 2))
        for n, prompt in enumerate(served.prompts(PAIRS, repeated=True))
    ]
    first = [served.server.ask([request])[0] for request in asked]
    if others == "none":
        again = [served.server.ask([request])[0] for request in asked]
    else:
        around = [replace(asked[n], seed=900 + n, max_tokens=LENGTH) for n in range(32 - PAIRS)]
        again = served.server.ask([*around, *asked])[len(around) :]
    pairs = list(zip(asked, _firsts(first), _firsts(again), strict=True))
    differing = [pair for pair in pairs if _differ(*pair[1:])]
    _require_rounding(served, differing, len(pairs))


@case("SRV-7", others=["another seed", "no seed"], reach="requests with seeds of their own, or without one")
def test_another_seed_gives_another_answer(served: ServedModel, others: str) -> None:
    """Eight seeds of one prompt, or none at all; four are in flight at once, four follow one after the other.

    A model that is sure of every token would answer alike, so no text is required.
    """
    [prompt] = served.prompts(1)
    seeds = [7 + n if others == "another seed" else None for n in range(8)]
    asked = [GenerationRequest(prompt, max_tokens=LENGTH, temperature=1.5, seed=seed) for seed in seeds]
    together = served.server.ask(asked[:4])
    apart = [served.server.ask([request])[0] for request in asked[4:]]
    same = [len({choice.text for choice in _firsts(answers)}) == 1 for answers in (together, apart)]
    if not any(same):
        return
    rows, _ = served.rows(prompt, tokens_of(together[0].choices[0]))
    if all(row.logprobs[0] > SURE for row in rows):
        raise Inconclusive("the model is sure of every token of this answer")
    what = "four seeds" if others == "another seed" else "four requests without a seed"
    raise Mismatch(Failure(Kind.RELATION, f"{what} give one answer, of which the model is not sure"))


def _firsts(answers: Sequence[Answer]) -> list[Choice]:
    return [answer.choices[0] for answer in answers]


@case("SRV-8", sampling="drawn", reach="a request with n above 1")
def test_samples_are_complete_and_drawn_anew(served: ServedModel, trial: Trial) -> None:
    """Eight requests of four samples: all are there, each follows the model, and none copies another.

    Every second request has the temperature 0.5, so that samples with another one than the first's are seen.
    """
    asked = [
        GenerationRequest(prompt, max_tokens=LENGTH, temperature=1 - n % 2 / 2, n=4, seed=trial.seed % 2**31 + n)
        for n, prompt in enumerate(served.prompts(8 if served.exact else 2))
    ]
    evidence = GivenText(trial.weight, trial.seed, drafted=False)
    equal = 0
    for n, (request, answer) in enumerate(zip(asked, served.server.ask(asked), strict=True)):
        require(len(answer.choices) == 4, f"request {n} has {len(answer.choices)} samples, expected 4")
        texts = [choice.text for choice in answer.choices]
        equal += len(set(texts)) == 1
        samples = [tokens_of(choice) for choice in answer.choices]
        for index, tokens in enumerate(samples):
            if tokens:
                served.add_sampled(evidence, request, tokens, beside(tokens, samples[:index]))
    require(equal < len(asked), "the four samples of every request are equal")
    trial.conclude(evidence.evidence, evidence.evidence.count)


ALIKE: dict[str, dict[str, Any]] = {
    "greedy": {},
    "max_tokens": {"max_tokens": 7},
    "stop": {},
    "logit_bias": {},
    "penalties": {"presence_penalty": 1.5, "frequency_penalty": 0.5},
}
"""Parameters that every sample of a request has."""


@case("SRV-8", parameter=list(ALIKE), reach="a request with n above 1")
def test_every_sample_has_the_parameters_of_its_request(served: ServedModel, parameter: str) -> None:
    """A top-k of 1 makes each sample the model's own text; without top-k, samples of a greedy request are."""
    top: dict[str, Any] = {"temperature": 1.0, "top_k": 1}
    sure = top if parameter != "greedy" and served.takes(**top) else {}
    [prompt] = served.prompts(1, repeated=True)
    plain = GenerationRequest(prompt, max_tokens=LENGTH, seed=3, **sure)
    [own] = _firsts(served.server.ask([plain]))
    request = replace(plain, n=3, **ALIKE[parameter])
    if parameter == "stop":
        request = replace(request, stop=(_stop_string(own.text),))
    elif parameter == "logit_bias":
        request = replace(request, logit_bias=dict.fromkeys(tokens_of(own)[1::2], -100.0))
    [answer] = served.server.ask([request])
    require(len(answer.choices) == request.n, f"there are {len(answer.choices)} samples, expected {request.n}")
    greedy = replace(request, temperature=0.0)
    for index, choice in enumerate(answer.choices):
        what = f"sample {index} of {request.n}"
        if request.stop:
            served.require_stopped(greedy, choice, before_first(own.text, request.stop), what)
        else:
            served.judge_greedy(greedy, choice, what)


@case("SRV-8", parameter=["logprobs", "stop_token_ids"], reach="a request with n above 1")
def test_every_sample_has_its_own_logprobs_and_end(served: ServedModel, parameter: str) -> None:
    """Tokens that the last sample lacks are stop tokens, which end the others at places of their own."""
    [prompt] = served.prompts(1, repeated=True)
    request = GenerationRequest(prompt, max_tokens=LENGTH, temperature=1.0, seed=5, n=4)
    if parameter == "logprobs":
        request = replace(request, logprobs=min(2, served.server.most_logprobs))
    else:
        [drawn] = served.server.ask([request])
        samples = [tokens_of(choice) for choice in drawn.choices]
        stops = {token for tokens in samples[:-1] for token in tokens[3::5]}.difference(*samples[-1:])
        request = replace(request, stop_token_ids=tuple(sorted(stops)))
    [answer] = served.server.ask([request])
    for index, choice in enumerate(answer.choices):
        tokens, what = tokens_of(choice), f"sample {index} of {request.n}"
        if parameter == "logprobs":
            check_answer(served, request, choice, what)
            continue
        early = [token for token in tokens[:-1] if token in request.stop_token_ids]
        require(not early, f"{what} goes on after the stop token {early[:1]}")
        reason, full = choice.finish_reason, len(tokens) == request.max_tokens
        at_both = full and tokens[-1] in served.ends(request) and reason in ("stop", "length")
        good = at_both or reason == ("length" if full else "stop")
        require(good, f"{what} has {len(tokens)} of {request.max_tokens} tokens and finished by {reason!r}")


def beside(tokens: Sequence[int], earlier: Sequence[Sequence[int]]) -> list[int]:
    """Return, for each place, the token there of the first earlier sample with the same text before; -1 without one."""
    found = []
    for place in range(len(tokens)):
        same = (other for other in earlier if len(other) > place and other[:place] == tokens[:place])
        found.append(next((other[place] for other in same), -1))
    return found


@case("SRV-13", form=["greedy", "sampled", "characters"], reach="any request")
def test_a_text_is_that_of_its_tokens(served: ServedModel, form: str) -> None:
    """Characters of several tokens fall between the steps of a drafter."""
    prompts = served.characters() if form == "characters" else served.prompts(PROMPTS, repeated=True)
    heat: dict[str, Any] = {"temperature": 1.0} if form == "sampled" else {}
    asked = [GenerationRequest(prompt, max_tokens=LENGTH, seed=n, **heat) for n, prompt in enumerate(prompts)]
    for n, answer in enumerate(served.server.ask(asked)):
        [choice], what = answer.choices, f"request {n}"
        count, told = len(tokens_of(choice)), answer.completion_tokens
        # Servers differ on whether the stop token itself is among the tokens of an answer.
        whole = told in (None, count, count + (choice.finish_reason == "stop"))
        require(whole, f"{what} reports {count} of {told} tokens")
        served.require_text(choice, what)

"""A server's texts against its model: greedy, sampled, penalised, stopped, limited (contract SRV)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from verispec.cases import case
from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import GenerationRequest
from verispec.engines.protocol.serving import Choice
from verispec.judge import Inconclusive
from verispec.judge.statistics.text import GivenText
from verispec.judge.statistics.trial import Trial
from verispec.suites.e2e._served import ServedModel, tokens_of
from verispec.suites.e2e._setups import require

LENGTH = 32
PROMPTS = 8
SAMPLED = 32
"""Texts of a sampled round where whole distributions are known; a quarter of them where each token is a request."""
STYLES: dict[str, tuple[dict[str, Any], ...]] = {
    "temperature 1": ({"temperature": 1.0},),
    "temperature 0.5": ({"temperature": 0.5},),
    "top_p 0.8": ({"temperature": 1.0, "top_p": 0.8},),
    "top_k 5": ({"temperature": 1.0, "top_k": 5},),
    "temperatures 0.3 and 1": ({"temperature": 0.3}, {"temperature": 1.0}),
}
"""Parameters of the requests of a batch, in turn."""
PENALTIES: dict[str, dict[str, Any]] = {
    "presence": {"presence_penalty": 1.5},
    "frequency": {"frequency_penalty": 0.75},
    "repetition": {"repetition_penalty": 1.5},
}


def greedy(prompts: Any, length: int = LENGTH, **more: Any) -> list[GenerationRequest]:
    return [GenerationRequest(prompt, max_tokens=length, **more) for prompt in prompts]


@case("SRV-1", prompts=["texts", "repeated phrases"], reach="temperature=0")
def test_greedy_answers_are_the_models_own(served: ServedModel, prompts: str) -> None:
    asked = greedy(served.prompts(PROMPTS, repeated=prompts != "texts"))
    for n, (request, answer) in enumerate(zip(asked, served.server.ask(asked), strict=True)):
        served.judge_greedy(request, answer.choices[0], f"request {n}")


@case("SRV-2", style=list(STYLES), reach="temperature above 0")
def test_sampled_answers_follow_the_models_distribution(served: ServedModel, trial: Trial, style: str) -> None:
    """Prompts of a repeated phrase, so that prompt lookup drafts.

    1,024 tokens find a temperature of 1 in place of 0.5; 256 of a server without a checkpoint do too. With two
    temperatures in flight they find that requests have those of their neighbours.
    """
    styles = STYLES[style]
    if not served.exact and any(fields.get("top_p", 1) < 1 or fields.get("top_k") for fields in styles):
        raise UnsupportedCall("only a checkpoint tells which tokens a limit keeps; add checkpoint=FOLDER")
    evidence = GivenText(trial.weight, trial.seed, drafted=False)
    texts = SAMPLED if served.exact else SAMPLED // 4
    cap = trial.size(texts * LENGTH)
    rounds = 0

    def step() -> None:
        nonlocal rounds
        first = (trial.seed + 1000 * rounds) % 2**31
        rounds += 1
        asked = [
            replace(request, seed=first + n, **styles[n % len(styles)])
            for n, request in enumerate(greedy(served.prompts(texts, repeated=True)))
        ]
        for request, answer in zip(asked, served.server.ask(asked), strict=True):
            if tokens := tokens_of(answer.choices[0]):
                served.add_sampled(evidence, request, tokens)

    trial.collect(evidence.evidence, cap // 2, step)  # Texts may end early; one round is enough.


@case("SRV-3", max_tokens=[1, 2, 7], reach="any request")
def test_an_answer_has_max_tokens(served: ServedModel, max_tokens: int) -> None:
    """K is larger than the number of remaining tokens, and accepted drafts must not spill over."""
    asked = greedy(served.prompts(PROMPTS, repeated=True), max_tokens)
    for n, (request, answer) in enumerate(zip(asked, served.server.ask(asked), strict=True)):
        [choice], what = answer.choices, f"request {n}"
        told = answer.completion_tokens
        count = told if choice.token_ids is None else len(choice.token_ids)
        if count is None:
            raise UnsupportedCall("the server reports neither token ids nor how many there are")
        require(told in (None, count), f"{what} has {count} tokens, its usage says {told}")
        require(
            answer.prompt_tokens in (None, len(request.prompt_token_ids)),
            f"{what} has a prompt of {len(request.prompt_token_ids)} tokens, its usage says {answer.prompt_tokens}",
        )
        wanted = "length" if count == max_tokens else "stop"
        require(count <= max_tokens, f"{what} has {count} tokens, max_tokens is {max_tokens}")
        # The last allowed token may be the end of the text too.
        good = choice.finish_reason == wanted or (count == max_tokens and choice.finish_reason == "stop")
        require(good, f"{what} has {count} of {max_tokens} tokens and finished by {choice.finish_reason!r}")


@case("SRV-3", samples="four", reach="a request with n above 1")
def test_the_tokens_of_all_samples_are_counted(served: ServedModel) -> None:
    prompts = served.prompts(4, repeated=True)
    asked = [GenerationRequest(prompt, max_tokens=7, temperature=1.0, n=4, seed=n) for n, prompt in enumerate(prompts)]
    for n, answer in enumerate(served.server.ask(asked)):
        told, count = answer.completion_tokens, sum(len(tokens_of(choice)) for choice in answer.choices)
        if told is None:
            raise UnsupportedCall("the server does not report how many tokens an answer has")
        require(told == count, f"the samples of request {n} have {count} tokens, its usage says {told}")


@case("SRV-4", stop="strings", reach="a request with stop strings")
def test_an_answer_ends_before_its_first_stop_string(served: ServedModel) -> None:
    """Four letters of the server's own text at many offsets are the stop string, over token boundaries too."""
    prompts = served.prompts(4, repeated=True)
    whole = [answer.choices[0].text for answer in served.server.ask(greedy(prompts))]
    asked, expected = [], []
    for prompt, text in zip(prompts, whole, strict=True):
        for place in range(4, len(text) - 4, max(len(text) // 8, 1)):
            stop = text[place : place + 4]
            asked.append(GenerationRequest(prompt, max_tokens=LENGTH, stop=(stop,)))
            expected.append(text.partition(stop)[0])
    if not asked:
        raise Inconclusive("the texts are too short to be stopped")
    for n, (request, answer, text) in enumerate(zip(asked, served.server.ask(asked), expected, strict=True)):
        _check_stopped(served, request, answer.choices[0], text, f"request {n} with stop={request.stop[0]!r}")


def _check_stopped(served: ServedModel, request: GenerationRequest, choice: Choice, expected: str, what: str) -> None:
    if choice.text != expected and not choice.text.startswith(expected):
        # Another text altogether: another greedy token, which only a tie within rounding excuses.
        served.judge_greedy(request, choice, what)
        expected = choice.text.partition(request.stop[0])[0]
    require(choice.text == expected, f"{what} has the text {choice.text!r}, expected {expected!r}")
    require(choice.finish_reason == "stop", f"{what} finished by {choice.finish_reason!r}, expected 'stop'")


@case("SRV-4", stop="tokens", reach="a request with stop_token_ids")
def test_an_answer_ends_at_its_first_stop_token(served: ServedModel) -> None:
    """Every token of a greedy answer in turn is the stop token."""
    [prompt] = served.prompts(1, repeated=True)
    [answer] = served.server.ask(greedy([prompt], 24))
    whole = tokens_of(answer.choices[0])
    stops = list(dict.fromkeys(whole))
    asked = [GenerationRequest(prompt, max_tokens=24, stop_token_ids=(stop,)) for stop in stops]
    for stop, request, found in zip(stops, asked, served.server.ask(asked), strict=True):
        choice, what = found.choices[0], f"stop token {stop}"
        tokens, wanted = tokens_of(choice), whole[: whole.index(stop) + 1]
        if tokens != wanted and tokens[: len(wanted) - 1] != wanted[:-1]:
            served.judge_greedy(request, choice, what)  # A tie within rounding may change the text.
            continue
        # Servers differ on whether the stop token itself is among the tokens of an answer.
        require(tokens in (wanted, wanted[:-1]), f"{what}: got {list(tokens)}, expected {list(wanted)}")
        require(choice.finish_reason == "stop", f"{what} finished by {choice.finish_reason!r}, expected 'stop'")


@case("SRV-9", penalty=list(PENALTIES), reach="a request with a penalty")
def test_penalised_answers_are_the_models_own(served: ServedModel, penalty: str) -> None:
    fields = PENALTIES[penalty]
    if "repetition_penalty" in fields and not served.exact:
        raise UnsupportedCall("a repetition penalty scales logits, which only a checkpoint tells")
    prompts = served.prompts(PROMPTS, repeated=True)
    asked = greedy(prompts, **fields)
    plain = served.server.ask(greedy(prompts))
    answers = served.server.ask(asked)
    for n, (request, answer) in enumerate(zip(asked, answers, strict=True)):
        served.judge_greedy(request, answer.choices[0], f"request {n} with {penalty} penalty")
    if all(a.choices[0].text == b.choices[0].text for a, b in zip(plain, answers, strict=True)):
        raise Inconclusive(f"{penalty} penalty changed no text")


@case("SRV-9", penalty="logit bias", reach="a request with logit_bias")
def test_biased_answers_are_the_models_own(served: ServedModel) -> None:
    """Every second token of the server's own answer is forbidden by a bias of -100."""
    prompts = served.prompts(PROMPTS, repeated=True)
    plain = [tokens_of(answer.choices[0]) for answer in served.server.ask(greedy(prompts))]
    asked = [
        GenerationRequest(prompt, max_tokens=LENGTH, logit_bias=dict.fromkeys(tokens[1::2], -100.0))
        for prompt, tokens in zip(prompts, plain, strict=True)
    ]
    for n, (request, answer) in enumerate(zip(asked, served.server.ask(asked), strict=True)):
        served.judge_greedy(request, answer.choices[0], f"request {n} with forbidden tokens")

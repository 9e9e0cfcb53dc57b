"""A server's texts against its model: greedy, sampled, penalised, stopped, limited (contract SRV)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from verispec.cases import case
from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import GenerationRequest
from verispec.engines.protocol.serving import Answer
from verispec.judge import Inconclusive
from verispec.judge.statistics.text import GivenText
from verispec.judge.statistics.trial import Trial
from verispec.suites.e2e._served import ServedModel, before_first, is_cut, tokens_of
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
    "unlike": (
        {"temperature": 0.6, "top_p": 0.7},
        {"temperature": 1.4, "top_k": 6},
        {"temperature": 0.8, "min_p": 0.15},
        {"temperature": 1.0, "top_k": 8, "top_p": 0.6},
        {"temperature": 0.9, "presence_penalty": 1.0, "frequency_penalty": 0.5},
        {"temperature": 1.0, "repetition_penalty": 1.3},
        {"temperature": 1.0},
    ),
}
"""Parameters of the requests of a batch, in turn. Of unlike ones those count that the server takes."""
PENALISED: dict[str, Any] = {"presence_penalty": 0.5, "frequency_penalty": 0.5}
LONG = 160
"""Tokens of a long answer; of one without a checkpoint a quarter, since each of them is a request."""
PENALTIES: dict[str, dict[str, Any]] = {
    "presence": {"presence_penalty": 1.5},
    "frequency": {"frequency_penalty": 0.75},
    "repetition": {"repetition_penalty": 1.5},
    "negative": {"presence_penalty": -1.0, "frequency_penalty": -0.5},
    "repetition below 1": {"repetition_penalty": 0.7},
}
FEW = ("negative", "repetition below 1")
"""Penalties whose sign alone is tested, by two prompts."""


def greedy(prompts: Any, length: int = LENGTH, **more: Any) -> list[GenerationRequest]:
    return [GenerationRequest(prompt, max_tokens=length, **more) for prompt in prompts]


@case("SRV-1", prompts=["texts", "repeated phrases", "one beginning", "long answers"], reach="temperature=0")
def test_greedy_answers_are_the_models_own(served: ServedModel, prompts: str) -> None:
    """Prompts with one beginning differ in one token, so that a server that keeps prefixes meets them again."""
    own, length = served.prompts(PROMPTS, repeated=prompts == "repeated phrases"), LENGTH
    if prompts == "one beginning":
        whole = sum(own[:4], ())
        own = [whole, *((*whole[:place], own[4][n], *whole[place + 1 :]) for n, place in enumerate((20, 47, 80, 95)))]
        served.server.ask(greedy(own[:1], length))
    elif prompts == "long answers":
        own, length = own[:2], LONG if served.exact else LONG // 4
    asked = greedy(own, length)
    for n, (request, answer) in enumerate(zip(asked, served.server.ask(asked), strict=True)):
        served.judge_greedy(request, answer.choices[0], f"request {n}")


@case("SRV-2", style=list(STYLES), reach="temperature above 0")
def test_sampled_answers_follow_the_models_distribution(served: ServedModel, trial: Trial, style: str) -> None:
    """Prompts of a repeated phrase, so that prompt lookup drafts.

    1,024 tokens find a temperature of 1 in place of 0.5; 256 of a server without a checkpoint do too. With two
    temperatures in flight they find that requests have those of their neighbours.
    """
    styles = STYLES[style]
    if not served.exact and any(fields.keys() != {"temperature"} for fields in styles):
        raise UnsupportedCall("only a checkpoint tells which tokens a limit keeps; add checkpoint=FOLDER")
    if style == "unlike":
        styles = tuple(fields for fields in styles if served.takes(**fields))
    texts = SAMPLED if served.exact else SAMPLED // 4
    asked = [
        replace(request, **styles[n % len(styles)])
        for n, request in enumerate(greedy(served.prompts(texts, repeated=True)))
    ]
    _collect(served, trial, asked, texts * LENGTH // 2)  # Texts may end early; one round is enough.


@case("SRV-2", style="three tokens", reach="temperature above 0")
def test_sampled_answers_of_few_tokens_follow_the_models_distribution(served: ServedModel, trial: Trial) -> None:
    """A bias leaves three tokens of similar probability, so that lookup drafts in every step and has a third accepted.

    A quarter of the requests has penalties, which weigh most where tokens come again. 8,192 tokens find recovered
    tokens that are drawn from the whole target, and numbers that a step draws again.
    """
    if not served.exact:
        raise UnsupportedCall("only a checkpoint tells how likely biased tokens are; add checkpoint=FOLDER")
    asked = []
    for n, prompt in enumerate(served.prompts(SAMPLED, repeated=True)):
        few = list(dict.fromkeys(prompt))[n % 4 :: 3][:3]
        rows, _ = served.rows(prompt, tuple(few * 8))
        means = [sum(row.scale + row.at_most(token) for row in rows) / len(rows) for token in few]
        bias = {token: round(60 - mean, 2) for token, mean in zip(few, means, strict=True)}
        more = PENALISED if n % 4 == 0 and served.takes(temperature=2.0, **PENALISED) else {}
        asked.append(GenerationRequest(prompt, max_tokens=LENGTH, temperature=2.0, logit_bias=bias, **more))
    _collect(served, trial, asked, 8 * SAMPLED * LENGTH)


def _collect(served: ServedModel, trial: Trial, asked: Sequence[GenerationRequest], cap: int) -> None:
    """Send the requests with seeds of their own, again and again, until `cap` tokens were seen or decide."""
    evidence = GivenText(trial.weight, trial.seed, drafted=False)
    rounds = 0

    def step() -> None:
        nonlocal rounds
        first = (trial.seed + 1000 * rounds) % 2**31
        rounds += 1
        seeded = [replace(request, seed=first + n) for n, request in enumerate(asked)]
        choices = [answer.choices[0] for answer in served.server.ask(seeded)]
        served.announce(seeded, choices)
        for request, choice in zip(seeded, choices, strict=True):
            if tokens := tokens_of(choice):
                served.add_sampled(evidence, request, tokens)

    trial.collect(evidence.evidence, trial.size(cap), step)


@case("SRV-3", max_tokens=[1, 2, 7], reach="any request")
def test_an_answer_has_max_tokens(served: ServedModel, max_tokens: int) -> None:
    """K is larger than the number of remaining tokens, and accepted drafts must not spill over.

    Answers with a higher limit show whether the text went on.
    """
    prompts = served.prompts(PROMPTS, repeated=True)
    asked = greedy(prompts, max_tokens)
    longer = served.server.ask(greedy(prompts, max_tokens + 3))
    for n, (request, answer, further) in enumerate(zip(asked, served.server.ask(asked), longer, strict=True)):
        [choice], what = answer.choices, f"request {n}"
        told = answer.completion_tokens
        count = told if choice.token_ids is None else len(choice.token_ids)
        if count is None:
            raise UnsupportedCall("the server reports neither token ids nor how many there are")
        require(told in (None, count), f"{what} has {count} tokens, its usage says {told}")
        _require_prompt_and_total(request, answer, what)
        wanted = "length" if count == max_tokens else "stop"
        require(count <= max_tokens, f"{what} has {count} tokens, max_tokens is {max_tokens}")
        # The last allowed token may be the end of the text too, unless the text goes on with a higher limit.
        goes_on = further.choices[0].token_ids is not None and len(tokens_of(further.choices[0])) > max_tokens
        goes_on = goes_on and tokens_of(further.choices[0])[:max_tokens] == choice.token_ids
        free = count == max_tokens and choice.finish_reason == "stop" and not goes_on
        good = choice.finish_reason == wanted or free
        require(good, f"{what} has {count} of {max_tokens} tokens and finished by {choice.finish_reason!r}")


def _require_prompt_and_total(request: GenerationRequest, answer: Answer, what: str) -> None:
    """Check the counts of an answer's usage that are not of its own tokens."""
    length = len(request.prompt_token_ids)
    told = answer.prompt_tokens
    require(told in (None, length), f"{what} has a prompt of {length} tokens, its usage says {told}")
    if None not in (told, answer.completion_tokens, answer.total_tokens):
        total = told + answer.completion_tokens  # type: ignore[operator]
        require(answer.total_tokens == total, f"{what} has {total} tokens in all, its usage says {answer.total_tokens}")


@case("SRV-3", samples="four", reach="a request with n above 1")
def test_the_tokens_of_all_samples_are_counted(served: ServedModel) -> None:
    prompts = served.prompts(4, repeated=True)
    asked = [GenerationRequest(prompt, max_tokens=7, temperature=1.0, n=4, seed=n) for n, prompt in enumerate(prompts)]
    for n, (request, answer) in enumerate(zip(asked, served.server.ask(asked), strict=True)):
        told, count = answer.completion_tokens, sum(len(tokens_of(choice)) for choice in answer.choices)
        if told is None:
            raise UnsupportedCall("the server does not report how many tokens an answer has")
        require(told == count, f"the samples of request {n} have {count} tokens, its usage says {told}")
        _require_prompt_and_total(request, answer, f"request {n}")


@case("SRV-4", stop=["strings", "several", "in the prompt"], reach="a request with stop strings")
def test_an_answer_ends_before_its_first_stop_string(served: ServedModel, stop: str) -> None:
    """Letters of the server's own text at many offsets are the stop string, over token boundaries too.

    Of several strings the earliest in the text counts, whichever is listed first. A string that begins in the prompt
    stops nothing.
    """
    prompts = served.prompts(4, repeated=True)
    whole = [answer.choices[0].text for answer in served.server.ask(greedy(prompts))]
    asked, expected = [], []
    for prompt, text in zip(prompts, whole, strict=True):
        for place in range(4, len(text) - 4, max(len(text) // (16 if stop == "several" else 8), 1)):
            stops: tuple[str, ...] = (text[place : place + 4],)
            if stop == "several":
                stops = (text[place + 2 : place + 4], text[place : place + 2], "\x07 is not there")
            elif stop == "in the prompt":
                stops = (served.decode(prompt)[-2:] + text[:2], text[place : place + 4])
            asked.append(GenerationRequest(prompt, max_tokens=LENGTH, stop=stops))
            expected.append(before_first(text, stops))
    if not asked:
        raise Inconclusive("the texts are too short to be stopped")
    for n, (request, answer, text) in enumerate(zip(asked, served.server.ask(asked), expected, strict=True)):
        served.require_stopped(request, answer.choices[0], text, f"request {n} with stop={list(request.stop)}")


@case("SRV-4", stop="absent", stream=[False, True], reach="a request with stop strings")
def test_a_stop_string_that_does_not_occur_changes_no_answer(served: ServedModel, stream: bool) -> None:
    """The text ends with the beginning of two stop strings, and has the third in letters of the other case."""
    prompts = served.prompts(2, repeated=True)
    whole = [answer.choices[0] for answer in served.server.ask(greedy(prompts))]
    asked, expected = [], []
    for prompt, choice in zip(prompts, whole, strict=True):
        text = choice.text
        other = next((part for n in range(len(text) - 3) if (part := text[n : n + 4].swapcase()) not in text), "\x07")
        if not text.endswith("\ufffd"):
            stops = (f"{text[-1:]}\x07", f"{text[-3:]}\x07", other)
            asked.append(GenerationRequest(prompt, max_tokens=LENGTH, stop=stops))
            expected.append(choice)
    if not asked:
        raise Inconclusive("every text ends within a character")
    answers = served.server.ask(asked, stream=stream)
    for n, (request, answer, plain) in enumerate(zip(asked, answers, expected, strict=True)):
        choice, what = answer.choices[0], f"request {n} with stop={list(request.stop)}"
        if choice.text != plain.text:
            require(
                not is_cut(choice, plain), f"{what} lacks {plain.text[len(choice.text) :]!r} at the end of its text"
            )
            served.judge_greedy(request, choice, what)  # A tie within rounding may change the text.
            continue
        same = choice.finish_reason == plain.finish_reason
        require(same, f"{what} finished by {choice.finish_reason!r}, without stop strings by {plain.finish_reason!r}")


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
        told = found.completion_tokens
        good = told in (None, len(tokens), len(wanted))
        require(good, f"{what}: the answer has {len(tokens)} tokens, its usage says {told}")


@case("SRV-4", stop="end of text", reach="a text that ends")
def test_an_answer_ends_at_the_end_of_its_text(served: ServedModel) -> None:
    """A bias makes the end token the most likely one at every place; it is no part of the text."""
    ends = sorted(served.ends(greedy(served.prompts(1))[0]))
    if not ends:
        raise UnsupportedCall("only a checkpoint tells the end token; add checkpoint=FOLDER")
    asked = greedy(served.prompts(2), 6, logit_bias=dict.fromkeys(ends, 100.0))
    for n, answer in enumerate(served.server.ask(asked)):
        choice, what = answer.choices[0], f"request {n}"
        tokens = tokens_of(choice)
        require(not tokens or (len(tokens) == 1 and tokens[0] in ends), f"{what} goes on after its end: {list(tokens)}")
        require(choice.finish_reason == "stop", f"{what} finished by {choice.finish_reason!r}, expected 'stop'")
        require(not choice.text, f"{what} has the text {choice.text!r}, expected none")


@case("SRV-4", stop="end of text ignored", reach="a request with ignore_eos")
def test_an_ignored_end_of_text_ends_no_answer(served: ServedModel) -> None:
    ends = sorted(served.ends(greedy(served.prompts(1))[0]))
    if not ends:
        raise UnsupportedCall("only a checkpoint tells the end token; add checkpoint=FOLDER")
    asked = greedy(served.prompts(2), 6, logit_bias=dict.fromkeys(ends, 100.0), ignore_eos=True)
    for n, answer in enumerate(served.server.ask(asked)):
        count, reason = len(tokens_of(answer.choices[0])), answer.choices[0].finish_reason
        require(count == 6, f"request {n} has {count} tokens, expected 6")
        require(reason == "length", f"request {n} finished by {reason!r}, expected 'length'")


@case("SRV-4", stop="min_tokens", reach="a request with min_tokens and stop_token_ids")
def test_no_stop_token_comes_before_min_tokens(served: ServedModel) -> None:
    """The first tokens of an answer are stop tokens, which its first tokens then must not be."""
    prompts = served.prompts(PROMPTS, repeated=True)
    plain = [tokens_of(answer.choices[0]) for answer in served.server.ask(greedy(prompts, 12))]
    asked = [
        GenerationRequest(prompt, LENGTH, min_tokens=3 + n % 5, stop_token_ids=tuple(set(own)), ignore_eos=True)
        for n, (prompt, own) in enumerate(zip(prompts, plain, strict=True))
    ]
    for n, (request, answer) in enumerate(zip(asked, served.server.ask(asked), strict=True)):
        choice, what = answer.choices[0], f"request {n} with min_tokens={request.min_tokens}"
        tokens = tokens_of(choice)
        early = [token for token in tokens[: request.min_tokens] if token in request.stop_token_ids]
        require(not early, f"{what} has the stop token {early[:1]} among its first tokens")
        late = [token for token in tokens[request.min_tokens : -1] if token in request.stop_token_ids]
        require(not late, f"{what} goes on after the stop token {late[:1]}")
        least = request.min_tokens
        require(len(tokens) >= least, f"{what} has {len(tokens)} tokens")
        served.judge_greedy(request, choice, what)


@case("SRV-9", penalty=list(PENALTIES), reach="a request with a penalty")
def test_penalised_answers_are_the_models_own(served: ServedModel, penalty: str) -> None:
    fields = PENALTIES[penalty]
    if "repetition_penalty" in fields and not served.exact:
        raise UnsupportedCall("a repetition penalty scales logits, which only a checkpoint tells")
    prompts = served.prompts(2 if penalty in FEW else PROMPTS, repeated=True)
    asked = greedy(prompts, **fields)
    plain = served.server.ask(greedy(prompts))
    answers = served.server.ask(asked)
    for n, (request, answer) in enumerate(zip(asked, answers, strict=True)):
        served.judge_greedy(request, answer.choices[0], f"request {n} with {penalty} penalty")
    if all(a.choices[0].text == b.choices[0].text for a, b in zip(plain, answers, strict=True)):
        raise Inconclusive(f"{penalty} penalty changed no text")


@case("SRV-9", penalty="logit bias", reach="a request with logit_bias")
def test_biased_answers_are_the_models_own(served: ServedModel) -> None:
    """Every second token of the server's own answer is forbidden by a bias of -100; a few others get a bias of 6."""
    prompts = served.prompts(PROMPTS, repeated=True)
    plain = [tokens_of(answer.choices[0]) for answer in served.server.ask(greedy(prompts))]
    asked = [
        GenerationRequest(
            prompt,
            max_tokens=LENGTH,
            logit_bias=dict.fromkeys(others[::7], 6.0) | dict.fromkeys(tokens[1::2], -100.0),
        )
        for prompt, tokens, others in zip(prompts, plain, [*plain[1:], plain[0]], strict=True)
    ]
    for n, (request, answer) in enumerate(zip(asked, served.server.ask(asked), strict=True)):
        served.judge_greedy(request, answer.choices[0], f"request {n} with biased tokens")


@case("SRV-9", penalty="allowed tokens", reach="a request with allowed_token_ids")
def test_answers_of_allowed_tokens_are_the_models_own(served: ServedModel) -> None:
    """The first token of each prompt's own answer and every second token of its prompt are forbidden."""
    if not served.exact:
        raise UnsupportedCall("only a checkpoint tells which allowed token is the most likely; add checkpoint=FOLDER")
    prompts = served.prompts(2, repeated=True)
    plain = [tokens_of(answer.choices[0]) for answer in served.server.ask(greedy(prompts, 1))]
    asked = [
        GenerationRequest(prompt, 8, allowed_token_ids=tuple(sorted({*prompt[::2]} - {*own})))
        for prompt, own in zip(prompts, plain, strict=True)
    ]
    for n, (request, answer) in enumerate(zip(asked, served.server.ask(asked), strict=True)):
        served.judge_greedy(request, answer.choices[0], f"request {n} with allowed tokens")

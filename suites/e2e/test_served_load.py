"""A server among many clients: 32 at once, clients that leave, requests that cannot work (contract SRV)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from verispec.cases import case
from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import GenerationRequest
from verispec.engines.protocol.serving import Answer
from verispec.errors import VerispecError
from verispec.judge import Failure, Kind, Mismatch
from verispec.suites.e2e._served import ServedModel, changes_logits
from verispec.suites.e2e._served_logprobs import check_answer
from verispec.suites.e2e._setups import require

LENGTH = 32
IN_FLIGHT = 32
DRAIN = 20.0
"""Seconds in which a server notices closed connections; it needs one step per request."""


MIXED: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.9},
    {"presence_penalty": 1.5, "frequency_penalty": 0.5},
    {},
    {"logprobs": 2},
    {"temperature": 0.6, "top_p": 0.6},
    {},
    {"logit_bias": {11: 12.0, 300: -4.0}},
    {"temperature": 1.2, "top_k": 4},
    {},
)
"""Parameters of requests in flight, in turn; a server gets those that it takes, and plain requests for the others."""


STOPS = 6
"""First tokens of each prompt that end an answer in turn."""


def mixed(served: ServedModel) -> list[GenerationRequest]:
    """Return 32 requests: greedy, sampled, penalised, biased, and with log-probabilities."""
    prompts = served.prompts(IN_FLIGHT // 4, repeated=True)
    stops = {"stop_token_ids": tuple(sorted({token for prompt in prompts for token in prompt[:STOPS]}))}
    kinds = [fields if served.takes(**fields) else {} for fields in (*MIXED, stops)]
    asked = [
        GenerationRequest(prompts[n % len(prompts)], max_tokens=LENGTH - n % 7, **kinds[n % len(kinds)])
        for n in range(IN_FLIGHT)
    ]
    return [request if request.greedy else replace(request, seed=n) for n, request in enumerate(asked)]


def judge(served: ServedModel, asked: list[GenerationRequest], answers: Any, what: str) -> None:
    """Check greedy answers, their ends and their log-probabilities; an answer without a reason was not awaited.

    Penalised and biased ones are checked where the server reports tokens.
    """
    for n, (request, answer) in enumerate(zip(asked, answers, strict=True)):
        choice = answer.choices[0]
        known = choice.token_ids is not None or not changes_logits(request)
        if request.greedy and choice.finish_reason and known:
            served.judge_greedy(request, choice, f"request {n} {what}")
            if request.logprobs is not None and choice.token_ids is not None:
                check_answer(served, request, choice, f"request {n} {what}")


@case("SRV-10", stream=[False, True], reach="many clients")
def test_requests_in_flight_change_no_answer(served: ServedModel, stream: bool) -> None:
    asked = mixed(served)
    judge(served, asked, served.server.ask(asked, stream=stream), f"of {IN_FLIGHT} in flight")


@case("SRV-10", others="before", reach="many clients")
def test_requests_leave_nothing_to_those_after_them(served: ServedModel) -> None:
    """Requests with parameters end, and plain ones take their places: no bias, penalty, stop or limit stays."""
    prompts = served.prompts(2, repeated=True)
    own = [answer.choices[0] for answer in served.server.ask([GenerationRequest(p, max_tokens=8) for p in prompts])]
    tokens = tuple(sorted({token for choice in own for token in choice.token_ids or ()}))
    kinds: tuple[dict[str, Any], ...] = (
        {"logit_bias": dict.fromkeys(tokens, -100.0)},
        {"presence_penalty": 2.0, "frequency_penalty": 2.0},
        {"stop_token_ids": tokens},
        {"stop": tuple(choice.text[1:3] for choice in own if choice.text[1:3])},
        {"repetition_penalty": 1.9},
        {"temperature": 1.5, "seed": 4},
        {"allowed_token_ids": tokens[:3]},
    )
    taken = [fields for fields in kinds if served.takes(**fields)]
    asked = [GenerationRequest(prompt, max_tokens=4, **fields) for prompt in prompts for fields in taken]
    served.server.ask(asked)
    plain = [GenerationRequest(prompt, max_tokens=12) for prompt in prompts] * len(taken)
    judge(served, plain, served.server.ask(plain), "after requests with parameters")


@case("SRV-11", clients="leave", reach="a client that disconnects")
def test_clients_that_leave_change_no_answer(served: ServedModel) -> None:
    """Every third client closes its connection within its stream; later answers are right, and nothing runs on."""
    asked = mixed(served)
    for n in range(1, IN_FLIGHT, 3):
        asked[n] = replace(asked[n], abort_after=1 + n % 5, max_tokens=4 * LENGTH)
    for round_ in range(2):
        judge(served, asked, served.server.ask(asked), f"beside clients that left, round {round_}")
    if served.server.running() is None:
        return
    deadline = time.monotonic() + DRAIN
    while (running := served.server.running()) and time.monotonic() < deadline:
        time.sleep(0.1)
    require(not running, f"{running} requests still run {DRAIN:g} s after their clients left")


BAD: dict[str, dict[str, Any]] = {
    "max_tokens 0": {"max_tokens": 0},
    "max_tokens -1": {"max_tokens": -1},
    "max_tokens as text": {"max_tokens": "many"},
    "temperature -1": {"temperature": -1.0},
    "top_p 2": {"top_p": 2.0},
    "n 0": {"n": 0},
    "logprobs -1": {"logprobs": -1},
    "stop as number": {"stop": 3.5},
    "no prompt": {"prompt": None},
    "prompt of objects": {"prompt": [{"a": 1}]},
    "prompt of unknown tokens": {"prompt": [5, 2**31 - 7, 7]},
    "prompt beyond the limit": {"prompt": [11] * 300_000},
    "another model": {"model": "no-such-model"},
    "temperature as text": {"temperature": "hot"},
    "seed as text": {"seed": "lucky"},
    "n as text": {"n": "two"},
    "logprobs 1000": {"logprobs": 1000},
    "no tokens": {"prompt": []},
    "stop of numbers": {"stop": [1, 2]},
    "logit_bias as list": {"logit_bias": [5]},
    "logit_bias of an unknown token": {"logit_bias": {"99999999": 5.0}},
}
"""Fields that make a body impossible; None removes one."""
LENIENT = {
    "max_tokens 0": "a request for no tokens is valid where only a prompt is scored",
    "max_tokens -1": "llama.cpp documents -1 as no limit",
    "temperature -1": "llama.cpp documents any temperature up to 0 as greedy",
    "top_p 2": "llama.cpp documents top-p from 1 on as switched off",
    "another model": "servers of one model ignore its name",
    "logprobs -1": "vLLM documents -1 as all tokens",
    **dict.fromkeys(
        (
            "temperature as text",
            "seed as text",
            "n as text",
            "logprobs 1000",
            "no tokens",
            "stop of numbers",
            "logit_bias as list",
            "logit_bias of an unknown token",
        ),
        "a server may ignore or limit a field that it cannot read; what counts is that it lives",
    ),
}
"""Bodies that a server may answer too, and why."""


@case("SRV-12", body=["no JSON", "a list", *BAD], reach="any client")
def test_a_bad_request_is_refused_and_the_server_goes_on(served: ServedModel, body: str) -> None:
    """The answer right after it, and that of a client beside it, are the model's own."""
    prompt = served.prompts(1)[0]
    good = GenerationRequest(prompt, max_tokens=8)
    sent: Any = {"no JSON": b'{"prompt": ', "a list": b"[1, 2]"}.get(body)
    if sent is None:
        fields = BAD[body]
        sent = {**served.server.body(good), **fields}
        if isinstance(fields.get("prompt"), list) and isinstance(served.server.body(good)["prompt"], str):
            raise UnsupportedCall("the server takes prompts as text alone")
        if fields.get("prompt", "") is None:
            del sent["prompt"]
    with ThreadPoolExecutor(1) as pool:
        around = pool.submit(served.server.ask, [good] * 2)
        status, text = served.server.post(sent)
    accepted = status == 200 and body in LENIENT
    if not accepted and not 400 <= status < 500:
        words = " ".join(text.split())[:200]
        raise Mismatch(Failure(Kind.ACCEPTED, f"{body} is answered with {status}, expected 400 to 499: {words}"))
    require(accepted or _says_why(text), f"{body} is refused with {status} and no reason: {text[:200]!r}")
    answered: dict[str, Callable[[], list[Answer]]] = {
        "beside": around.result,
        "after": partial(served.server.ask, [good]),
    }
    for place, answers in answered.items():
        try:
            found = answers()
        except VerispecError as error:
            words = f"nobody answers {place} {body}: {error.diagnostic.message}"
            raise Mismatch(Failure(Kind.RAISED, words)) from error
        for answer in found:
            served.judge_greedy(good, answer.choices[0], f"a request {place} {body}")


def _says_why(text: str) -> bool:
    """Return True if a refusal says why: JSON with a message, or text."""
    try:
        found = json.loads(text)
    except ValueError:
        return bool(text.strip())
    return bool(found)

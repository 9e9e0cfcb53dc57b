"""The guard around generators: requests that an engine changes, and kinds of tokens that its steps do not make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from verispec.engines.protocol.check import ProtocolError
from verispec.engines.protocol.generation import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    SpeculativeStep,
    TokenKind,
)
from verispec.judge import Kind, Mismatch
from verispec.suites.e2e._guard import GuardedGenerator


class _Changing:
    """Emits token 1 for each request, after `change` was called with the last one."""

    def __init__(self, change: Any) -> None:
        self._change = change

    def generate(self, requests: Sequence[GenerationRequest], on_emit: Any = None) -> list[GenerationResult]:
        self._change(requests[-1])
        return [GenerationResult((1,), FinishReason.LENGTH) for _ in requests]


def requests() -> list[GenerationRequest]:
    return [GenerationRequest((1, 2), max_tokens=1), GenerationRequest((3,), max_tokens=1, logit_bias={4: 1.0})]


@pytest.mark.parametrize(
    "change",
    [
        lambda request: request.logit_bias.clear(),
        lambda request: request.logit_bias.update({0: 1.0}),
        lambda request: object.__setattr__(request, "seed", 5),
        lambda request: object.__setattr__(request, "prompt_token_ids", (3, 3)),
    ],
    ids=["bias cleared", "bias added", "seed", "prompt"],
)
def test_a_changed_request_fails_and_leaves_the_cases_own_alone(change: Any) -> None:
    asked: Any = requests()
    with pytest.raises(Mismatch) as caught:
        GuardedGenerator(_Changing(change), 8).generate(asked)  # type: ignore[arg-type]
    assert caught.value.failure.kind is Kind.INPUT_CHANGED
    assert asked == requests()


def test_requests_that_stay_as_they_are_pass() -> None:
    results = GuardedGenerator(_Changing(lambda request: None), 8).generate(requests())  # type: ignore[arg-type]
    assert [result.token_ids for result in results] == [(1,), (1,)]


class _Answering:
    """Gives one answer to every call."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def generate(self, requests: Sequence[GenerationRequest], on_emit: Any = None) -> Any:
        return self._answer


RESULT = GenerationResult((1,), FinishReason.LENGTH)


@pytest.mark.parametrize(
    ("answer", "words"),
    [([], "0 results for 2 requests"), ([RESULT], "1 result for 2 requests"), ([RESULT] * 3, "3 results for 2")],
)
def test_a_lost_result_fails_whatever_the_case_looks_at(answer: Any, words: str) -> None:
    with pytest.raises(Mismatch, match=words):
        GuardedGenerator(_Answering(answer), 8).generate(requests())


def test_a_request_of_no_token_fails_whatever_the_case_looks_at() -> None:
    empty = GenerationResult((), FinishReason.LENGTH)
    for late in (empty, GenerationResult((1,), FinishReason.LENGTH, samples=(empty,))):
        with pytest.raises(Mismatch, match="request 1 ended by its length without a token"):
            GuardedGenerator(_Answering([RESULT, late]), 8).generate(requests())
    aborted = GenerationResult((), FinishReason.ABORT)
    assert GuardedGenerator(_Answering([RESULT, aborted]), 8).generate(requests()) == [RESULT, aborted]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "expected a list of GenerationResult, got None"),
        (["text", RESULT], r"\[0\]: expected a .*, got str 'text'"),
    ],
)
def test_another_type_accuses_the_adapter(answer: Any, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        GuardedGenerator(_Answering(answer), 8).generate(requests())


ACCEPTED, RECOVERED = TokenKind.ACCEPTED, TokenKind.RECOVERED


class _Stopping:
    """Ends a step of three accepted drafts and a recovered token at its second token."""

    def __init__(self, kinds: tuple[TokenKind, ...]) -> None:
        self._kinds = kinds

    def generate(self, requests: Sequence[GenerationRequest], on_emit: Any = None) -> list[GenerationResult]:
        steps = (SpeculativeStep(4, 3),)
        return [GenerationResult((1, 2), FinishReason.STOP, kinds=self._kinds, steps=steps) for _ in requests]


@pytest.mark.parametrize("kinds", [(ACCEPTED, ACCEPTED), ()], ids=["accepted", "not reported"])
def test_kinds_that_the_steps_make_pass(kinds: tuple[TokenKind, ...]) -> None:
    GuardedGenerator(_Stopping(kinds), 8).generate(requests())  # type: ignore[arg-type]


def test_kinds_of_a_step_that_a_stop_token_cuts_fail() -> None:
    with pytest.raises(Mismatch, match="its steps make them"):
        GuardedGenerator(_Stopping((ACCEPTED, RECOVERED)), 8).generate(requests())  # type: ignore[arg-type]

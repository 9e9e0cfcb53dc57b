"""The guard around generators: requests that an engine changes, and kinds of tokens that its steps do not make."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from verispec.engines.protocol.generation import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    SpeculativeStep,
    TokenKind,
)
from verispec.engines.protocol.results import ProtocolError
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


def changed(**fields: Any) -> GenerationResult:
    """A result with other fields, of any type."""
    return replace(RESULT, **fields)


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
    asked = [replace(request, abort_after=1) for request in requests()]
    assert GuardedGenerator(_Answering([RESULT, aborted]), 8).generate(asked) == [RESULT, aborted]


@pytest.mark.parametrize(
    ("late", "words"),
    [
        (GenerationResult((), FinishReason.STOP), "request 1 ended by a stop token or string without a token"),
        (GenerationResult((), FinishReason.ABORT), "request 1 ended by an abort of the engine's own"),
    ],
    ids=["stopped", "aborted"],
)
def test_a_request_that_an_error_ended_fails_whatever_the_case_looks_at(late: GenerationResult, words: str) -> None:
    """Engines end a request like this when its step raised: many a check of each token holds for those that it has."""
    with pytest.raises(Mismatch, match=words):
        GuardedGenerator(_Answering([RESULT, late]), 8).generate(requests())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "expected a list of GenerationResult, got None"),
        (["text", RESULT], r"\[0\]: expected a .*, got str 'text'"),
        ([changed(token_ids=(1.0,)), RESULT], r"\[0\].token_ids: expected token ids, got tuple \(1.0,\)"),
        ([changed(token_ids=torch.tensor([1.5])), RESULT], r"\[0\].token_ids: expected token ids, got Tensor"),
        ([changed(token_ids=(True,)), RESULT], r"\[0\].token_ids: expected token ids, got tuple"),
        ([RESULT, changed(text=None)], r"\[1\].text: expected str, got None"),
        ([changed(samples="one"), RESULT], r"\[0\].samples: expected a tuple of GenerationResult, got str 'one'"),
    ],
)
def test_another_type_accuses_the_adapter(answer: Any, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        GuardedGenerator(_Answering(answer), 8).generate(requests())


class _Telling:
    """Calls `on_emit` with what it was made with; it may catch what that raises."""

    def __init__(self, *arguments: Any, caught: bool = False, **named: Any) -> None:
        self._arguments, self._named, self._caught = arguments, named, caught

    def generate(self, requests: Sequence[GenerationRequest], on_emit: Any = None) -> Any:
        with contextlib.suppress(Exception) if self._caught else contextlib.nullcontext():
            on_emit(*self._arguments, **self._named)
        return [RESULT for _ in requests]


@pytest.mark.parametrize(
    ("telling", "words"),
    [
        (
            _Telling(0, (1,)),
            r"expected a request's index, its new tokens and their kinds or \(\), got on_emit\(0, \(1,\)\)",
        ),
        (_Telling(0, (1,), caught=True), r"got on_emit\(0, \(1,\)\)"),
        (_Telling(0, 1, ()), "expected new token ids, got int 1"),
        (_Telling("0", (1,), ()), "expected the index of a request, got str '0'"),
        (_Telling(0, (1,), None), "expected kinds of tokens, or .., got None"),
        (_Telling(0, ("a",), ()), "expected new token ids, got tuple"),
    ],
)
def test_another_call_of_on_emit_accuses_the_adapter(telling: Any, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        GuardedGenerator(telling, 8).generate(requests()[:1])


def test_on_emit_may_be_called_by_name() -> None:
    telling: Any = _Telling(index=0, tokens=torch.tensor([1]), kinds=["plain"])
    assert GuardedGenerator(telling, 8).generate(requests()[:1]) == [RESULT]


@pytest.mark.parametrize("made", [list, np.array, torch.tensor])
def test_tokens_may_be_any_sequence_of_integers(made: Any) -> None:
    streamed = [changed(token_ids=made([1, 2])) for _ in requests()]
    found = GuardedGenerator(_Answering(streamed), 8).generate(requests())
    assert [result.token_ids for result in found] == [(1, 2)] * 2


def test_results_stay_when_the_engine_writes_into_its_buffer() -> None:
    """Two calls whose results are one buffer would agree, whatever they are."""
    buffer = [1, 2]
    generator = GuardedGenerator(_Answering([changed(token_ids=buffer)] * 2), 8)
    first = generator.generate(requests())
    buffer[:] = [3, 4]
    assert [result.token_ids for result in first] == [(1, 2)] * 2
    assert [result.token_ids for result in generator.generate(requests())] == [(3, 4)] * 2


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


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (changed(kinds=(ACCEPTED, ACCEPTED)), "request 0 has 2 kinds of 1 tokens"),
        (changed(token_ids=(1, 2), kinds=(ACCEPTED,)), "request 0 has 1 kinds of 2 tokens"),
        (changed(steps=(SpeculativeStep(0, 0), SpeculativeStep(2, 3))), "step 1 of request 0 has 3 of 2 drafts"),
    ],
)
def test_counts_that_no_step_has_fail_whatever_the_case_looks_at(result: GenerationResult, words: str) -> None:
    with pytest.raises(Mismatch, match=words):
        GuardedGenerator(_Answering([result] * 2), 8).generate(requests())

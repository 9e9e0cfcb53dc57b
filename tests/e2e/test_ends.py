"""Outputs that end elsewhere, or by another reason, name the stop token or the limit that was passed over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from verispec.engines.protocol.generation import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    SpeculativeStep,
    TokenLogprobs,
)
from verispec.judge import Mismatch
from verispec.suites.e2e._logprobs import Text, check_result
from verispec.suites.e2e.test_limits import require_end, require_reason, require_stopped

STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH


def ended(tokens: Sequence[int], reason: FinishReason) -> GenerationResult:
    return GenerationResult(tuple(tokens), reason)


def test_a_stop_token_at_max_tokens_is_named() -> None:
    with pytest.raises(Mismatch, match="after 2 tokens, all that max_tokens allows; the last is the stop token 4"):
        require_reason(ended([3, 4], LENGTH), 2, {4})
    with pytest.raises(Mismatch, match="by length after 1 token of 9; the last is the stop token 4: expected stop"):
        require_reason(ended([4], LENGTH), 9, {4})


def test_another_reason_without_a_stop_token_is_named() -> None:
    with pytest.raises(Mismatch, match="by stop after 2 tokens of 9; the last, 5, is no stop token: expected length"):
        require_reason(ended([3, 5], STOP), 9, {4})


def test_the_right_reasons_pass() -> None:
    require_reason(ended([3, 4], STOP), 2, {4})
    require_reason(ended([3, 5], LENGTH), 2, {4})


def test_the_ends_that_are_passed_are_told_from_the_others() -> None:
    results = [ended([3, 0], STOP), ended([3, 5, 0], STOP), ended([5, 6, 7], LENGTH), ended([], LENGTH)]
    with pytest.raises(Mismatch, match="2 of 4 texts go on past 5, a stop token of theirs; texts end at 0"):
        require_stopped(results, {0, 5})


class EndsWithoutIgnoring:
    """A generator that forgets a request's stop tokens where it ignores ends of sequence, or in any case."""

    def __init__(self, *, forgets_all: bool) -> None:
        self.forgets_all = forgets_all

    def generate(self, requests: Sequence[GenerationRequest]) -> list[GenerationResult]:
        [request] = requests
        forgets = self.forgets_all or request.ignore_eos
        return [ended([3, 4, 5], LENGTH) if forgets else ended([3, 4], STOP)]


@pytest.mark.parametrize(("forgets_all", "told"), [(False, "right"), (True, "wrong too")])
def test_an_end_that_ignore_eos_forgets_is_named(forgets_all: bool, told: str) -> None:
    generator: Any = EndsWithoutIgnoring(forgets_all=forgets_all)
    request = GenerationRequest((1,), max_tokens=3, ignore_eos=True, stop_token_ids=(4,))
    message = rf"stop token 4: got \[3, 4, 5\], expected \[3, 4\]; without ignore_eos, the wrong request is {told}$"
    with pytest.raises(Mismatch, match=message):
        require_end(generator, request, *generator.generate([request]), 4, (3, 4, 5))


def test_texts_that_end_at_their_stop_tokens_pass() -> None:
    require_stopped([ended([3, 0], STOP), ended([5], STOP), ended([6, 7], LENGTH)], {0, 5})


@pytest.mark.parametrize(("told", "behind"), [(5, True), (4, False)])
def test_log_probabilities_behind_an_end_are_named(told: int, behind: bool) -> None:
    nothing: Any = None
    text = Text("a text", nothing, GenerationRequest((1,), logprobs=0), (3, 4, 0))
    steps = (SpeculativeStep(0, 0), SpeculativeStep(3, 3))
    result = GenerationResult((3, 4, 0), STOP, steps=steps, logprobs=(TokenLogprobs(-1.0),) * told)
    with pytest.raises(Mismatch, match=f"a text has {told} log-probabilities, expected 3") as caught:
        check_result(text, result, "raw")
    assert ("verified 5 tokens, of which it has 3" in caught.value.failure.message) == behind

"""A configured drafter shows in counts, in steps or in kinds of tokens; else it is not decided that it drafts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    SpeculationMetrics,
    SpeculativeStep,
    TokenKind,
)
from verispec.judge import Inconclusive, Mismatch
from verispec.suites.e2e.test_limits import test_drafts_are_made_and_counted as check_drafts

MODEL, LOOKUP = "draft_model k=3", "ngram k=3"
PLAIN = SpeculativeStep(0, 0)


class _WithoutCounts:
    """Gives every request two tokens, with these steps and kinds."""

    def __init__(self, steps: Sequence[SpeculativeStep] = (), kinds: Sequence[TokenKind] = ()) -> None:
        self._told: dict[str, Any] = {"steps": tuple(steps), "kinds": tuple(kinds)}

    def generate(self, requests: Sequence[GenerationRequest], on_emit: Any = None) -> list[GenerationResult]:
        return [GenerationResult((1, 2), FinishReason.LENGTH, **self._told) for _ in requests]

    def metrics(self) -> SpeculationMetrics:
        return SpeculationMetrics()

    def check(self, draft: str) -> None:
        check_drafts(lambda *_, **__: self, [(1, 2)] * 16, draft)  # type: ignore[arg-type]


@pytest.mark.parametrize("draft", [MODEL, LOOKUP])
def test_an_engine_that_tells_nothing_is_not_decided(draft: str) -> None:
    """Its text is right with speculation off too."""
    with pytest.raises(UnsupportedCall, match="neither counts, steps nor kinds of tokens: speculation may be off"):
        _WithoutCounts().check(draft)


@pytest.mark.parametrize("told", [{"steps": [PLAIN, PLAIN]}, {"kinds": [TokenKind.PLAIN] * 2}], ids=["steps", "kinds"])
def test_a_model_that_never_drafts_fails(told: Any) -> None:
    with pytest.raises(Mismatch, match="no step had a draft: speculation is configured and off"):
        _WithoutCounts(**told).check(MODEL)
    with pytest.raises(Inconclusive, match="or the lookup found nothing"):
        _WithoutCounts(**told).check(LOOKUP)


@pytest.mark.parametrize(
    "told", [{"steps": [PLAIN, SpeculativeStep(3, 0)]}, {"kinds": [TokenKind.PLAIN, TokenKind.RECOVERED]}]
)
def test_drafts_that_steps_or_kinds_tell_pass(told: Any) -> None:
    _WithoutCounts(**told).check(MODEL)


class _Counting(_WithoutCounts):
    """Counts so many verifications and accepted drafts in each call, whatever it emits."""

    def __init__(self, verifications: int, accepted: int) -> None:
        super().__init__()
        self._added = verifications, accepted
        self._calls = 0

    def generate(self, requests: Sequence[GenerationRequest], on_emit: Any = None) -> list[GenerationResult]:
        self._calls += 1
        return super().generate(requests, on_emit)

    def metrics(self) -> SpeculationMetrics:
        drafts, accepted = (number * self._calls for number in self._added)
        return SpeculationMetrics(drafts, 3 * drafts, accepted, (accepted, 0, 0))


def test_counts_beyond_the_emitted_tokens_fail() -> None:
    """Sixteen requests emit 32 tokens; their last steps may have lost four each."""
    _Counting(48, 48).check(MODEL)
    with pytest.raises(Mismatch, match=r"49 accepted drafts and 49 verifications .*, but only 32 emitted tokens"):
        _Counting(49, 49).check(MODEL)

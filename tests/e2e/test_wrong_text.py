"""Drafts after a wrong text: the failure says first that the text is wrong."""

from __future__ import annotations

import pytest

from verispec import fixtures
from verispec.engines.protocol.generation import FinishReason, GenerationResult, SpeculativeStep, TokenKind
from verispec.judge import Mismatch
from verispec.suites.e2e._drafts import judge_texts
from verispec.suites.e2e._reference_model import greedy_text, reference_model

TARGET, DRAFT = fixtures.model("target"), fixtures.model("draft")
PROMPT = (5, 6, 7, 8)


def message_of(text: tuple[int, ...]) -> str:
    """Return the failure of a text whose steps drafted three tokens each and accepted none."""
    steps = (SpeculativeStep(0, 0), *(SpeculativeStep(3, 0) for _ in text[1:]))
    result = GenerationResult(text, FinishReason.LENGTH, (TokenKind.PLAIN,) * len(text), steps)
    with pytest.raises(Mismatch) as raised:
        judge_texts(reference_model(DRAFT), [(PROMPT, result)], 3, target=TARGET)
    return raised.value.failure.message


def test_a_wrong_text_is_named_before_its_drafts() -> None:
    own = greedy_text(DRAFT, PROMPT, 12)
    assert own != greedy_text(TARGET, PROMPT, 12)
    message = message_of(own)
    assert message.startswith("the text itself is wrong: prompt 0 emitted ")
    assert "; its drafts too: at token " in message


def test_of_a_right_text_the_drafts_alone_are_named() -> None:
    assert message_of(greedy_text(TARGET, PROMPT, 24)).startswith("at token ")

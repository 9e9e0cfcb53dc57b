"""Words for a wrong token of a text: the step before it, and a type of 16 bits in which its logit is the largest."""

from __future__ import annotations

import pytest

from verispec.engines.protocol.generation import FinishReason, GenerationResult, SpeculativeStep
from verispec.suites.e2e._reference_model import equal_in
from verispec.suites.e2e.test_hybrid import step_before

TEXT = GenerationResult(
    tuple(range(9)),
    FinishReason.LENGTH,
    steps=(SpeculativeStep(0, 0), SpeculativeStep(3, 2), SpeculativeStep(3, 3), SpeculativeStep(2, 0)),
)


@pytest.mark.parametrize(
    ("position", "words"),
    [
        (0, ""),
        (1, ""),
        (3, ""),
        (4, "; the step before accepted 2 drafts of 3"),
        (7, "; the step before accepted 2 drafts of 3"),
        (8, "; the step before accepted 3 drafts of 3"),
    ],
)
def test_the_last_step_that_ended_before_a_token_is_told(position: int, words: str) -> None:
    assert step_before(TEXT, position) == words


@pytest.mark.parametrize(
    ("logit", "words"),
    [
        (9.9, ""),
        (9.9999, "; the two logits are equal in float16"),
        (9.98, "; the two logits are equal in bfloat16"),
    ],
)
def test_a_type_of_16_bits_in_which_logits_are_equal_is_told(logit: float, words: str) -> None:
    assert equal_in(10.0, logit) == words

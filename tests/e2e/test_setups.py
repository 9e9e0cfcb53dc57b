"""Common requests and questions of the cases of the suite e2e."""

from __future__ import annotations

import pytest

from verispec.engines.protocol.generation import FinishReason, GenerationResult, SpeculativeStep
from verispec.judge import Inconclusive
from verispec.suites.e2e._setups import first_verification

VERIFIED = SpeculativeStep(drafted=3, accepted=1)


def result_of(*steps: SpeculativeStep) -> GenerationResult:
    return GenerationResult((1, 2, 3), FinishReason.LENGTH, steps=steps)


def test_drafts_after_the_first_token_are_verified_by_the_second_step() -> None:
    assert first_verification(result_of(SpeculativeStep(0, 0), VERIFIED)) is VERIFIED


def test_an_engine_that_drafts_the_first_token_is_not_called_wrong() -> None:
    with pytest.raises(Inconclusive, match="first token"):
        first_verification(result_of(VERIFIED, VERIFIED))

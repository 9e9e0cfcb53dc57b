"""Mistakes in what counts as output: greedy texts that are made by one have its name, and right ones none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from verispec.cases.request_parameters import processed
from verispec.engines.protocol.generation import GenerationRequest, GenerationResult, SpeculativeStep
from verispec.suites.e2e import _miscounts as miscounts
from verispec.suites.e2e._miscounts import GreedyText, mistake_of
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

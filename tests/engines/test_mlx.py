"""Engine ``mlx-lm``: the steps of a text. Its generation has the tox environment mlx-lm."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from verispec.engines.adapters.admission import Turn
from verispec.engines.adapters.mlx import MlxGenerator
from verispec.engines.protocol.generation import FinishReason, GenerationRequest, GenerationResult


def run(is_draft: str, most: int, *, stop: int = -1, temperature: float = 0.0) -> tuple[GenerationResult, MlxGenerator]:
    """Return the result of tokens 0, 1, ... that a draft model made where `is_draft` has a 1, three drafts per step."""
    generator = object.__new__(MlxGenerator)
    emitted = ((token, None, kind == "1") for token, kind in enumerate(is_draft))

    def emit(request: GenerationRequest, most: int) -> Iterator[Any]:
        return emitted

    vars(generator).update(
        _mx=SimpleNamespace(random=SimpleNamespace(seed=lambda seed: None)),
        _options=SimpleNamespace(max_drafts=3),
        _draft=object(),
        _steps=[],
        _emitted=emit,
    )
    request = GenerationRequest((1,), temperature=temperature, max_tokens=most)
    return generator.run(Turn(request, most, 0, frozenset({stop}))), generator


def counts(result: GenerationResult) -> list[tuple[int, int]]:
    return [(step.drafted, step.accepted) for step in result.steps]


def test_a_step_ends_with_a_token_of_the_target() -> None:
    result, generator = run("1100111010", most=10)
    assert result.token_ids == tuple(range(10))
    assert counts(result) == [(3, 2), (3, 0), (3, 3), (2, 1)]
    metrics = generator.metrics()
    assert (metrics.num_drafts, metrics.num_draft_tokens, metrics.num_accepted_tokens) == (4, 11, 6)
    assert metrics.accepted_per_position == (3, 2, 1)


def test_a_step_of_accepted_drafts_alone_ends_at_the_limit() -> None:
    assert counts(run("011", most=3)[0]) == [(3, 0), (2, 2)]


def test_a_stop_token_ends_the_text_and_not_its_step() -> None:
    result, _ = run("011100", most=6, stop=2)
    assert (result.token_ids, result.finish_reason) == ((0, 1, 2), FinishReason.STOP)
    assert counts(result) == [(3, 0), (3, 3)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_sampled_text_has_no_steps(temperature: float) -> None:
    assert bool(run("10", most=2, temperature=temperature)[0].steps) is (temperature == 0)

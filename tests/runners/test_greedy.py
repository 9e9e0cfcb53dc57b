"""Greedy generation equals transformers' own, whatever proposes and however the work is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from verispec.engines.protocol.generation import GenerationRequest, TokenKind

if TYPE_CHECKING:
    from conftest import Models

METHODS = ("none", "ngram", "suffix", "draft_model", "parallel", "eagle3", "mtp")
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "k=1": {"num_speculative_tokens": 1},
    "k=7": {"num_speculative_tokens": 7},
    "k longer than the output": {"num_speculative_tokens": 40},
    "blocks of 1": {"block_size": 1},
    "blocks of 5": {"block_size": 5},
    "chunks of 7": {"max_num_batched_tokens": 7},
    "one token a step": {"max_num_batched_tokens": 1},
    "batches of 1": {"max_num_seqs": 1},
    "batches of 2": {"max_num_seqs": 2},
    "preemption": {"block_size": 4, "num_blocks": 30, "max_model_len": 96},
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("method", METHODS)
def test_equals_transformers(
    method: str,
    setting: str,
    models: Models,
    prompts: list[tuple[int, ...]],
    expected: list[tuple[int, ...]],
) -> None:
    runner = models.runner(method, **SETTINGS[setting])
    results = runner.generate([GenerationRequest(p, max_tokens=24, ignore_eos=True) for p in prompts])
    assert [result.token_ids for result in results] == expected
    assert len(runner.pool.free_blocks) == runner.pool.num_blocks - 1
    assert any(result.preemptions for result in results) == (setting == "preemption")
    drafted = method != "none" and setting != "one token a step"
    assert (runner.metrics().num_drafts > 0) == drafted


@pytest.mark.parametrize("method", METHODS)
def test_kinds_and_steps_tell_the_same_story_as_the_metrics(
    method: str, models: Models, prompts: list[tuple[int, ...]]
) -> None:
    runner = models.runner(method)
    results = runner.generate([GenerationRequest(p, max_tokens=24, ignore_eos=True) for p in prompts])
    metrics = runner.metrics()
    steps = [step for result in results for step in result.steps]
    assert metrics.num_drafts == sum(step.drafted > 0 for step in steps)
    assert metrics.num_draft_tokens == sum(step.drafted for step in steps)
    assert metrics.num_accepted_tokens == sum(step.accepted for step in steps)
    for result in results:
        kinds = iter(result.kinds)
        for step in result.steps:
            assert [next(kinds) for _ in range(step.accepted)] == [TokenKind.ACCEPTED] * step.accepted
            own = TokenKind.BONUS if step.accepted == step.drafted else TokenKind.RECOVERED
            assert next(kinds) == (own if step.drafted else TokenKind.PLAIN)
        assert next(kinds, None) is None
    if method in ("ngram", "draft_model"):
        assert 0 < metrics.num_accepted_tokens < metrics.num_draft_tokens, "both acceptance and rejection must be seen"


def test_requests_stream_in_order_and_whole(models: Models, prompts: list[tuple[int, ...]]) -> None:
    runner = models.runner("draft_model")
    streamed: dict[int, list[int]] = {}
    results = runner.generate(
        [GenerationRequest(p, max_tokens=24) for p in prompts],
        on_emit=lambda index, token_ids, kinds: streamed.setdefault(index, []).extend(token_ids),
    )
    assert [tuple(streamed[index]) for index in range(len(prompts))] == [result.token_ids for result in results]

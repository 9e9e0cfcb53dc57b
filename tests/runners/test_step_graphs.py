"""Whole decode steps as graphs: the same tokens as step by step, however requests come, differ and end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from graph_runners import EagerGPURunner, EagerRunner, ReplayRunner

from verispec.engines.protocol.generation import GenerationRequest, GenerationResult
from verispec.reference.runners.base import BaseRunner
from verispec.reference.runners.gpu import GPURunner
from verispec.reference.runners.scheduler import Scheduled
from verispec.reference.runners.step_graphs import _Step

if TYPE_CHECKING:
    from conftest import Models

METHODS = ("none", "draft_model", "eagle3")
OPTIONS: dict[str, Any] = {"dtype": "float64", "max_num_seqs": 4, "block_size": 4}


class CountingRunner(ReplayRunner):
    """Counts the steps that are no graphs."""

    launched = 0

    def _launch(self, *arguments: Any) -> None:
        self.launched += 1
        super()._launch(*arguments)


RUNNERS = EagerRunner, CountingRunner


def outcome(results: list[GenerationResult]) -> list[tuple[Any, ...]]:
    return [(r.token_ids, r.finish_reason, r.kinds, r.steps, r.logprobs) for r in results]


def compare(
    models: Models,
    method: str,
    requests: list[GenerationRequest],
    runners: tuple[type[BaseRunner], type[BaseRunner]] = RUNNERS,
    **options: Any,
) -> BaseRunner:
    """Generate twice on both runners, so that the second time runs recorded graphs; return the one with graphs."""
    eager, graphed = (models.runner(method, runner, **{**OPTIONS, **options}) for runner in runners)
    for _ in range(2):
        if isinstance(graphed, CountingRunner):
            graphed.launched = 0
        assert outcome(graphed.generate(requests)) == outcome(eager.generate(requests))
    assert graphed.metrics() == eager.metrics()
    return graphed


@pytest.mark.parametrize("method", [*METHODS, "parallel", "mtp"])
def test_only_the_prompt_is_launched(method: str, models: Models, prompts: list[tuple[int, ...]]) -> None:
    request = GenerationRequest(prompts[3], max_tokens=24, ignore_eos=True)
    runner = compare(models, method, [request])
    assert isinstance(runner, CountingRunner) and runner.launched == 1


@pytest.mark.parametrize("method", METHODS)
def test_requests_end_in_their_own_ways(method: str, models: Models, prompts: list[tuple[int, ...]]) -> None:
    """One by a stop token within accepted drafts, one by an abort, one by few tokens, one by the longest sequence."""
    stop = models.continue_greedily(prompts[0], 12)[9]
    requests = [
        GenerationRequest(prompts[0], max_tokens=40, stop_token_ids=(stop,), ignore_eos=True),
        GenerationRequest(prompts[1], max_tokens=40, abort_after=17, ignore_eos=True),
        GenerationRequest(prompts[2], max_tokens=7, ignore_eos=True),
        GenerationRequest(prompts[3], max_tokens=99, ignore_eos=True),
    ]
    compare(models, method, requests, max_model_len=len(prompts[3]) + 30)


@pytest.mark.parametrize("method", METHODS)
def test_other_neighbours_and_late_requests(method: str, models: Models, prompts: list[tuple[int, ...]]) -> None:
    """Steps with a sampled neighbour or a prompt are launched, the steps between and after them are graphs."""
    requests = [
        GenerationRequest(prompt, max_tokens=10 + 5 * i, temperature=0.8 if i == 1 else 0.0, seed=i, ignore_eos=True)
        for i, prompt in enumerate(prompts * 2)
    ]
    compare(models, method, requests, max_num_batched_tokens=16)


PLACES = [pytest.param(RUNNERS, id="cpu"), pytest.param((EagerGPURunner, GPURunner), id="gpu", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("runners", PLACES)
@pytest.mark.parametrize("method", [*METHODS, "parallel"])
def test_steps_are_launched_before_the_last_one_is_read(
    method: str,
    runners: tuple[type[BaseRunner], type[BaseRunner]],
    models: Models,
    prompts: list[tuple[int, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ends that the device cannot see drop what it computed ahead; large blocks leave room for it."""
    starts: list[int] = []
    start = _Step.start

    def counted(step: _Step, scheduled: Sequence[Scheduled]) -> Any:
        starts.append(len(scheduled))
        return start(step, scheduled)

    monkeypatch.setattr(_Step, "start", counted)
    stop = models.continue_greedily(prompts[0], 12)[9]
    requests = [
        GenerationRequest(prompts[0], max_tokens=40, stop_token_ids=(stop,), ignore_eos=True),
        GenerationRequest(prompts[1], max_tokens=40, abort_after=17, ignore_eos=True),
        GenerationRequest(prompts[2], max_tokens=24, ignore_eos=True),
    ]
    runner = compare(models, method, requests, runners, block_size=64)
    starts.clear()
    steps = max(len(result.steps) for result in runner.generate(requests))
    assert 0 < len(starts) < steps / 2


@pytest.mark.parametrize("runners", PLACES)
def test_drafts_are_cut_after_a_launch(
    runners: tuple[type[BaseRunner], type[BaseRunner]], models: Models, prompts: list[tuple[int, ...]]
) -> None:
    """The device verified all drafts ahead; the host schedules fewer of them, and the step is launched again."""
    requests = [GenerationRequest(prompt, max_tokens=24, ignore_eos=True) for prompt in prompts[2::-1]]
    compare(models, "draft_model", requests, runners, block_size=64, max_num_batched_tokens=10)


@pytest.mark.parametrize("method", METHODS)
def test_preempted_requests(method: str, models: Models, prompts: list[tuple[int, ...]]) -> None:
    requests = [GenerationRequest(prompt, max_tokens=40, ignore_eos=True) for prompt in prompts[:4]]
    runner = compare(models, method, requests, max_model_len=96, num_blocks=33)
    assert sum(result.preemptions for result in runner.generate(requests))

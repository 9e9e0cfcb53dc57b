"""Whole decode steps as graphs: the same tokens as step by step, however requests come, differ and end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from graph_runners import EagerGPURunner, EagerRunner, ReplayRunner

from verispec.engines.protocol.generation import GenerationRequest, GenerationResult, SpeculationMetrics
from verispec.reference.models.decode_graphs import RECORD_AT
from verispec.reference.runners import base
from verispec.reference.runners.base import BaseRunner
from verispec.reference.runners.gpu import GPURunner
from verispec.reference.runners.scheduler import Scheduled
from verispec.reference.runners.step_graphs import SPARE_SLOTS, _Step

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
    return [(r.token_ids, r.finish_reason, r.kinds, r.steps, r.logprobs, r.prompt_logprobs) for r in results]


def compare(
    models: Models,
    method: str,
    requests: list[GenerationRequest],
    runners: tuple[type[BaseRunner], type[BaseRunner]] = RUNNERS,
    times: int = 2,
    anew: bool = False,
    **options: Any,
) -> BaseRunner:
    """Generate twice or more, so that later times run recorded graphs, and each time what a runner without them does.

    Args:
        models: checkpoints.
        method: method of speculation.
        requests: requests of each time.
        runners: class without graphs, class with them.
        times: number of times.
        anew: True if each time draws other numbers, so that the runner without graphs generates each time too.
        options: options of both runners.

    Returns:
        The runner with graphs.
    """
    eager, graphed = (models.runner(method, runner, **{**OPTIONS, **options}) for runner in runners)
    expected = outcome(eager.generate(requests))
    for time in range(times):
        if isinstance(graphed, CountingRunner):
            graphed.launched = 0
        assert outcome(graphed.generate(requests)) == expected
        if anew and time + 1 < times:
            expected = outcome(eager.generate(requests))
    made, each = eager.metrics(), 1 if anew else times
    assert graphed.metrics() == SpeculationMetrics(
        each * made.num_drafts,
        each * made.num_draft_tokens,
        each * made.num_accepted_tokens,
        tuple(each * count for count in made.accepted_per_position),
    )
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


@pytest.mark.parametrize("runners", PLACES)
@pytest.mark.parametrize(("drafts", "count"), [(3, 1), (4, 3)])
@pytest.mark.parametrize("method", ["draft_model", "parallel", "eagle3", "mtp"])
def test_synthetic_steps_are_graphs(
    method: str,
    drafts: int,
    count: int,
    runners: tuple[type[BaseRunner], type[BaseRunner]],
    times: int,
    models: Models,
    prompts: list[tuple[int, ...]],
) -> None:
    """Each request accepts by its own seed, whatever steps are launched ahead."""
    requests = [
        GenerationRequest(prompt, max_tokens=40 - 9 * i, seed=seed, ignore_eos=True)
        for i, (prompt, seed) in enumerate(zip(prompts[:count], (2**63 + 5, None, 3), strict=False))
    ]
    synthetic: dict[str, Any] = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.6}
    options: dict[str, Any] = {"sampler": "request_state", "num_speculative_tokens": drafts, "block_size": 64}
    anew = any(request.seed is None for request in requests)
    runner = compare(models, method, requests, runners, times=times, anew=anew, **options, **synthetic)
    metrics = runner.metrics()
    assert 0 < metrics.num_accepted_tokens < metrics.num_draft_tokens
    if isinstance(runner, CountingRunner):
        assert runner.launched == (count > 1)  # three prompts differ much in length


@pytest.mark.parametrize("runners", PLACES)
@pytest.mark.parametrize("lengths", [(5,), (32,), (21, 1), (17, 3, 32, 9, 30)], ids=str)
@pytest.mark.parametrize("method", [*METHODS, "parallel", "mtp"])
def test_prompts_are_graphs(
    method: str,
    lengths: tuple[int, ...],
    runners: tuple[type[BaseRunner], type[BaseRunner]],
    models: Models,
    prompts: list[tuple[int, ...]],
) -> None:
    """Prompts of the same padded length, up to the longest sequence, are recorded at the fourth time."""
    requests = [GenerationRequest(prompts[3][:length], max_tokens=2, ignore_eos=True) for length in lengths]
    runner = compare(models, method, requests, runners, times=RECORD_AT, max_num_seqs=8, max_model_len=34)
    if isinstance(runner, CountingRunner):
        assert runner.launched == 0


def test_a_step_of_prompts_that_is_launched(models: Models, prompts: list[tuple[int, ...]]) -> None:
    """Its padding is too long, its prompt is a part, its prompt's log-probabilities are wanted, or it has drafts."""
    for lengths, options in [((60, 1, 1, 1, 1), {}), ((40,), {"max_num_batched_tokens": 16})]:
        requests = [GenerationRequest(prompts[3][:length], max_tokens=1, ignore_eos=True) for length in lengths]
        runner = compare(models, "none", requests, times=RECORD_AT + 1, max_num_seqs=8, **options)
        assert isinstance(runner, CountingRunner) and runner.launched > 0
    scored = [GenerationRequest(prompts[3], max_tokens=1, ignore_eos=True, prompt_logprobs=2)]
    compare(models, "none", scored, times=RECORD_AT + 1)
    late = [GenerationRequest(prompts[2], max_tokens=count, ignore_eos=True) for count in (4, 9, 8, 7)]
    compare(models, "draft_model", late, times=RECORD_AT, max_num_seqs=2)


def test_nothing_follows_a_prompt_ahead(
    times: int, models: Models, prompts: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step after a prompt has another shape, so that a second launch of the prompt's would be for nothing."""
    widths: list[tuple[int, int]] = []
    launch = _Step.launch

    def counted(step: _Step, *arguments: Any) -> Any:
        widths.append((step._shape.width, step._shape.tokens))
        return launch(step, *arguments)

    monkeypatch.setattr(_Step, "launch", counted)
    request = GenerationRequest(prompts[2], max_tokens=60, ignore_eos=True)
    runner = compare(models, "draft_model", [request], times=times, block_size=64)
    widths.clear()
    runner.generate([request])
    assert [width for width, tokens in widths if width < tokens] == [1]


@pytest.mark.parametrize(("place", "expected"), [(2, 16), (4, 10)])
def test_spare_slots_end_at_the_longest_sequence(
    place: int, expected: int, models: Models, prompts: list[tuple[int, ...]]
) -> None:
    """Requests get them while half of the pool is free: 17 tokens of 5 blocks do, 40 tokens of 10 do not."""
    runner = models.runner("none", ReplayRunner, **OPTIONS, max_model_len=64, num_blocks=17)
    blocks: list[int] = []
    request = GenerationRequest(prompts[place], max_tokens=1)
    runner.generate([request], lambda *_: blocks.append(len(runner._scheduler.running[0].blocks)))
    assert blocks == [expected]


@pytest.mark.parametrize("spare", [0, SPARE_SLOTS])
@pytest.mark.parametrize("method", METHODS)
def test_preempted_requests(
    method: str, spare: int, models: Models, prompts: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spare slots change which requests are preempted, and thereby their drafts, but no token."""
    monkeypatch.setattr(base, "SPARE_SLOTS", spare)
    requests = [GenerationRequest(prompt, max_tokens=40, ignore_eos=True) for prompt in prompts[:4]]
    options = {**OPTIONS, "max_model_len": 96, "num_blocks": 33}
    eager, graphed = (models.runner(method, runner, **options) for runner in RUNNERS)
    for _ in range(2):
        expected, results = eager.generate(requests), graphed.generate(requests)
        assert [result.token_ids for result in results] == [result.token_ids for result in expected]
        assert spare or (outcome(results), graphed.metrics()) == (outcome(expected), eager.metrics())
        assert sum(result.preemptions for result in results)
    assert len(graphed.pool.free_blocks) == graphed.pool.num_blocks - 1

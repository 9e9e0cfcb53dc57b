"""Sampled steps as graphs: the same tokens as step by step, by temperature, limits and seed of each request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from test_step_graphs import PLACES, CountingRunner, compare

from verispec.engines.protocol.generation import GenerationRequest
from verispec.reference.models.decode_graphs import RECORD_AT
from verispec.reference.runners.base import BaseRunner
from verispec.reference.runners.step_graphs import _Step

if TYPE_CHECKING:
    from conftest import Models

Runners = tuple[type[BaseRunner], type[BaseRunner]]

STYLES: dict[str, list[dict[str, Any]]] = {
    "temperature": [{"temperature": 0.9}, {"temperature": 0.5}, {"temperature": 1.7}],
    "limits": [{"temperature": 1.2, "top_k": 5}, {"temperature": 0.8, "top_p": 0.7}, {"temperature": 1.5}],
    "min_p": [{"temperature": 1.3, "min_p": 0.05}, {"temperature": 0.9, "top_k": 9}, {"temperature": 0.6}],
    "beside greedy": [{}, {"temperature": 1.1, "top_p": 0.9}, {}],
}
SEEDS = (2**63 + 5, 7, -3)
COUNTED: dict[str, Any] = {"sampler": "request_state", "block_size": 64}


def requests_of(prompts: list[tuple[int, ...]], style: str, tokens: int = 25) -> list[GenerationRequest]:
    return [
        GenerationRequest(prompt, max_tokens=tokens - 6 * i, seed=seed, ignore_eos=True, **fields)
        for i, (prompt, seed, fields) in enumerate(zip(prompts[2:5], SEEDS, STYLES[style], strict=True))
    ]


@pytest.mark.parametrize("runners", PLACES)
@pytest.mark.parametrize(
    ("method", "style"),
    [(method, "limits") for method in ("none", "draft_model", "parallel", "eagle3", "mtp")]
    + [("draft_model", style) for style in STYLES if style != "limits"],
)
def test_sampled_steps_are_graphs(
    method: str, style: str, runners: Runners, times: int, models: Models, prompts: list[tuple[int, ...]]
) -> None:
    runner = compare(models, method, requests_of(prompts, style), runners, times=times, **COUNTED)
    if isinstance(runner, CountingRunner):
        assert runner.launched == 0
    assert method == "none" or 0 < runner.metrics().num_accepted_tokens < runner.metrics().num_draft_tokens


@pytest.mark.parametrize("runners", PLACES)
@pytest.mark.parametrize("verification", ["block", "synthetic"])
@pytest.mark.parametrize("drafts", ["probabilistic", "greedy"])
def test_other_verifications_are_graphs(
    verification: str, drafts: str, runners: Runners, times: int, models: Models, prompts: list[tuple[int, ...]]
) -> None:
    options: dict[str, Any] = {"rejection_sample_method": verification, "draft_sample_method": drafts}
    if verification == "synthetic":
        options["synthetic_acceptance_length"] = 2.6
    requests = requests_of(prompts, "limits")
    runner = compare(models, "draft_model", requests, runners, times=times, **COUNTED, **options)
    assert not isinstance(runner, CountingRunner) or runner.launched == 0


@pytest.mark.parametrize("runners", PLACES)
@pytest.mark.parametrize(
    ("method", "lengths"),
    [("none", (5,)), ("draft_model", (5,)), *((m, (17, 3, 32, 9, 30)) for m in ("draft_model", "parallel", "eagle3"))],
    ids=str,
)
def test_prompts_of_sampled_requests_are_graphs(
    method: str, lengths: tuple[int, ...], runners: Runners, models: Models, prompts: list[tuple[int, ...]]
) -> None:
    """The first token of a prompt is drawn at its position, and its drafts behind it."""
    requests = [
        GenerationRequest(prompts[3][:length], max_tokens=3, ignore_eos=True, seed=length, temperature=1.2, top_k=50)
        for length in lengths
    ]
    options = {**COUNTED, "max_num_seqs": 8}
    runner = compare(models, method, requests, runners, times=RECORD_AT, **options)
    assert not isinstance(runner, CountingRunner) or runner.launched == 0


@pytest.mark.parametrize("method", ["none", "draft_model", "eagle3"])
def test_requests_come_and_end_in_their_own_ways(method: str, models: Models, prompts: list[tuple[int, ...]]) -> None:
    """Slots change hands, drafts wait for the budget, and the last steps have fewer drafts than K."""
    requests = [
        GenerationRequest(
            prompt, max_tokens=10 + 7 * (i % 4), seed=i, ignore_eos=True, temperature=(0.0, 0.7, 1.6)[i % 3], top_p=0.9
        )
        for i, prompt in enumerate(prompts * 2)
    ]
    compare(models, method, requests, times=3, max_num_batched_tokens=16, max_num_seqs=3, **COUNTED)


def test_requests_that_need_more_are_launched(models: Models, prompts: list[tuple[int, ...]]) -> None:
    """Penalties, log-probabilities and the generators of packed batches are the host's."""
    for more, options in [
        ({"presence_penalty": 0.5}, COUNTED),
        ({"logprobs": 2}, COUNTED),
        ({"temperature": 0.9}, {"sampler": "flat", "block_size": 64}),
    ]:
        request = GenerationRequest(prompts[2], max_tokens=8, seed=1, ignore_eos=True, **more)
        runner = compare(models, "draft_model", [request], times=RECORD_AT + 1, **options)
        assert isinstance(runner, CountingRunner) and runner.launched > 2


@pytest.mark.parametrize("drafts", ["probabilistic", "greedy"])
def test_steps_of_sampled_requests_are_launched_ahead(
    drafts: str, times: int, models: Models, prompts: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step ahead that is dropped has left the distributions of its drafts beside those that are verified again."""
    starts: list[int] = []
    start = _Step.start

    def counted(step: _Step, scheduled: Any) -> Any:
        starts.append(len(scheduled))
        return start(step, scheduled)

    monkeypatch.setattr(_Step, "start", counted)
    requests = requests_of(prompts, "temperature")[:1]
    options = {**COUNTED, "draft_sample_method": drafts}
    runner = compare(models, "draft_model", requests, times=times, **options)
    starts.clear()
    steps = len(runner.generate(requests)[0].steps)
    assert 0 < len(starts) < steps / 2


@pytest.mark.parametrize("runners", PLACES)
@pytest.mark.parametrize("method", ["draft_model", "eagle3"])
def test_steps_ahead_are_dropped(
    method: str, runners: Runners, times: int, models: Models, prompts: list[tuple[int, ...]]
) -> None:
    """An abort, which the device cannot see, lets another request in, and the other one's drafts are verified again."""
    requests = [
        GenerationRequest(
            prompts[2 + i % 3], max_tokens=60, abort_after=9 + 5 * i, seed=i, ignore_eos=True, temperature=1.4
        )
        for i in range(4)
    ]
    compare(models, method, requests, runners, times=times, max_num_seqs=2, **COUNTED)

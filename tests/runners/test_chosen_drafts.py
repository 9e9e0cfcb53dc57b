"""A number of drafts that the runner chooses: what decides it, and that no text depends on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from verispec.engines.protocol.generation import GenerationRequest, GenerationResult
from verispec.reference.models.kv_cache import KVCache
from verispec.reference.runners.draft_depth import CPU_SPEEDS, Acceptance, DraftDepths, PassCost

if TYPE_CHECKING:
    from conftest import Models

METHODS = ("ngram", "suffix", "draft_model", "parallel", "eagle3", "mtp")
AUTO: dict[str, Any] = {"num_speculative_tokens": "auto"}
SETTINGS: dict[str, dict[str, Any]] = {
    "one batch": {},
    "batches of 1": {"max_num_seqs": 1},
    "batches of 2, chunks of 7": {"max_num_seqs": 2, "max_num_batched_tokens": 7},
    "preemption": {"block_size": 4, "num_blocks": 34, "max_model_len": 96},
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("method", METHODS)
def test_equals_transformers(
    method: str, setting: str, models: Models, prompts: list[tuple[int, ...]], expected: list[tuple[int, ...]]
) -> None:
    runner = models.runner(method, **AUTO, **SETTINGS[setting])
    results = runner.generate([GenerationRequest(p, max_tokens=24, ignore_eos=True) for p in prompts])
    assert [result.token_ids for result in results] == expected
    assert any(result.preemptions for result in results) == (setting == "preemption")
    assert len(runner.metrics().accepted_per_position) == 8
    assert runner.metrics().num_drafts > 0


@pytest.mark.parametrize("sampler", ["flat", "request_state"])
@pytest.mark.parametrize("method", ["ngram", "draft_model", "eagle3"])
def test_a_seed_decides_text_and_drafts(
    method: str, sampler: str, models: Models, prompts: list[tuple[int, ...]]
) -> None:
    """Together with others, greedy ones too, and alone; with preemption where the sampler promises it."""
    asked = [
        GenerationRequest(p, max_tokens=24, temperature=0.5, ignore_eos=True, seed=n) for n, p in enumerate(prompts)
    ]
    greedy = [GenerationRequest(prompt, max_tokens=24, ignore_eos=True) for prompt in prompts[:1]]
    few = {"max_num_seqs": 2, "sampler": sampler, **AUTO}
    runner = models.runner(method, **few)
    expected = [told(runner.generate([request])) for request in asked]
    assert [told([result]) for result in runner.generate([*greedy, *asked])[1:]] == expected
    assert runner.metrics().num_drafts > 0
    if sampler == "request_state":
        short = models.runner(method, block_size=4, num_blocks=25, max_model_len=96, **few).generate(asked)
        assert any(result.preemptions for result in short)
        assert [told([result]) for result in short] == expected


def test_nothing_of_a_request_reaches_the_next_one(models: Models, prompts: list[tuple[int, ...]]) -> None:
    runner = models.runner("draft_model", **AUTO, max_num_seqs=1)
    asked = [GenerationRequest(prompt, max_tokens=40, ignore_eos=True) for prompt in prompts[:3]]
    first = told(runner.generate(asked[:1]))
    assert told(runner.generate(asked)[:1]) == first
    assert told(runner.generate([*asked[1:], asked[0]])[-1:]) == first
    assert len({step.drafted for result in runner.generate(asked) for step in result.steps}) > 2


def told(results: list[GenerationResult]) -> list[object]:
    return [(result.token_ids, result.kinds, result.steps) for result in results]


# The choice


@dataclass
class Request:
    """The parts of a request that a choice reads."""

    acceptance: Acceptance = field(default_factory=Acceptance)
    greedy: bool = True
    num_tokens: int = 100
    draft_room: int = 60

    @property
    def params(self) -> SimpleNamespace:
        return SimpleNamespace(greedy=self.greedy)


def cost(elements: int, bytes_per_token: int) -> PassCost:
    cache = SimpleNamespace(layers=[torch.zeros(1, bytes_per_token // 4)])
    return PassCost(nn.Linear(elements // 100, 100), cache, CPU_SPEEDS)  # type: ignore[arg-type]


def depths(drafter: PassCost | None, parallel: bool = False, full: int = 16) -> DraftDepths:
    """Choose for a target of 6.4 million weights, as the fixtures' is."""
    return DraftDepths(CPU_SPEEDS, cost(6_400_000, 10_240), drafter, parallel, 8, full)


DRAFTER = cost(750_000, 1024)


def of_rate(rate: float, **given: Any) -> Request:
    return Request(Acceptance(16.0, rate * 20 - 3.2), **given)


def test_the_rate_begins_at_the_prior_and_follows_the_drafts() -> None:
    acceptance = Acceptance()
    assert acceptance.rate == pytest.approx(0.8)
    acceptance.count(3, 1)
    assert (acceptance.tested, acceptance.accepted) == (2, 1)
    acceptance.count(3, 3)
    assert (acceptance.tested, acceptance.accepted) == (5, 4)
    for _ in range(40):
        acceptance.count(8, 8)
    assert acceptance.tested == pytest.approx(16)
    assert acceptance.rate == pytest.approx(19.2 / 20)
    for _ in range(40):
        acceptance.count(1, 0)
    assert acceptance.rate < 0.25
    for _ in range(400):
        acceptance.count(0, 0)
    assert acceptance.rate > 0.7, "without drafts the rate returns to the prior"


@pytest.mark.parametrize(("drafter", "parallel"), [(None, False), (DRAFTER, False), (DRAFTER, True)])
def test_drafts_grow_with_acceptance_and_shrink_with_the_batch(drafter: PassCost | None, parallel: bool) -> None:
    choose = depths(drafter, parallel).choose
    by_rate = [choose([of_rate(rate)])[0] for rate in (0.16, 0.4, 0.6, 0.8, 0.95)]
    assert by_rate == sorted(by_rate)
    assert by_rate[-1] > by_rate[0]
    by_size = [choose([of_rate(0.8)] * size)[0] for size in (1, 2, 4, 16, 64)]
    assert by_size == sorted(by_size, reverse=True)
    assert by_size[0] >= 3
    assert by_size[-1] == 0


def test_a_drafter_that_never_hits_is_tested_now_and_then() -> None:
    choose, request, drafted = depths(DRAFTER).choose, Request(), 0
    for step in range(400):
        [depth] = choose([request])
        request.acceptance.count(depth, 0)
        drafted += depth > 0
        assert depth or step >= 3
    assert 10 < drafted < 32


def test_requests_of_a_batch_have_drafts_of_their_own() -> None:
    """Rows of the target cost time in a batch, and the likelier drafts get them."""
    choose = depths(DRAFTER).choose
    good, bad = choose([of_rate(0.95), of_rate(0.16)])
    assert good > bad
    assert choose([of_rate(0.95), of_rate(0.95, draft_room=1)])[1] == 1
    assert choose([of_rate(0.95, draft_room=2)]) == [2]
    assert choose([]) == []


def test_a_sampled_request_has_the_drafts_of_a_full_batch() -> None:
    for full in (1, 2, 16):
        choose = depths(DRAFTER, full=full).choose
        sampled, others = of_rate(0.8, greedy=False), [of_rate(0.3), of_rate(0.9)]
        alone = choose([sampled])
        assert alone == choose([of_rate(0.8)] * full)[:1]
        assert choose([others[0], sampled, others[1]])[1:2] == alone
        assert choose([others[0], sampled, others[1]])[::2] == choose(others)


def test_the_drafter_reads_nothing_where_drafts_do_not_pay(models: Models, prompts: list[tuple[int, ...]]) -> None:
    runner = models.runner("eagle3", **AUTO)
    proposer: Any = runner.proposer
    assert runner._depths is not None
    runner._depths.choose = lambda requests: [0] * len(requests)  # type: ignore[method-assign]
    proposer.propose = None
    results = runner.generate([GenerationRequest(prompt, max_tokens=8) for prompt in prompts])
    assert not any(step.drafted for result in results for step in result.steps)


def test_cost_counts_linear_layers_and_the_cache() -> None:
    config = SimpleNamespace(num_key_value_heads=2, head_dim=8, hidden_size=16, num_attention_heads=2)
    cache = KVCache(config, 3, 4, torch.float32, torch.device("cpu"))  # type: ignore[arg-type]
    model = nn.Sequential(nn.Embedding(50, 10), nn.Linear(10, 20), nn.Linear(20, 50, bias=False))
    found = PassCost(model, cache, CPU_SPEEDS)
    assert found.weights == pytest.approx(1200 * 4 / CPU_SPEEDS.bandwidth)
    assert found.row == pytest.approx(2 * 1200 / CPU_SPEEDS.arithmetic[4])
    assert found.token == pytest.approx(3 * 2 * 2 * 8 * 4 / CPU_SPEEDS.bandwidth)
    assert found.seconds(10**9, 7) == pytest.approx(10**9 * found.row + 7 * found.token)
    assert found.seconds(1, 0) == max(found.weights, found.row)

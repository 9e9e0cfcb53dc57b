"""The paged cache: who writes where, and that nothing stale is ever read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from verispec.engines.protocol.generation import GenerationRequest, LoadOptions
from verispec.reference.models.attention import PagedBatch
from verispec.reference.models.kv_cache import NULL_BLOCK
from verispec.reference.proposers.chain import ChainProposer
from verispec.reference.runners.base import StepInputs
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.scheduler import Scheduled

if TYPE_CHECKING:
    from conftest import Models

CROWDED = {"block_size": 4, "num_blocks": 30, "max_model_len": 96, "max_num_batched_tokens": 23}


class WatchedRunner(CPURunner):
    """Checks every step's inputs, and before it fills every slot with NaN that holds no token of a running request.

    A slot of a rejected draft, of a finished or preempted request or of a free block is such a slot, in the target's
    cache and in the drafter's. A NaN that is read makes logits NaN, and the tokens wrong.
    """

    steps = 0
    drafter_passes = 0

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        if isinstance(self.proposer, ChainProposer):
            run = self.proposer._run

            def watched(token_ids: torch.Tensor, positions: torch.Tensor, *rest: Any) -> Any:
                self._check_drafter(positions, next(each for each in rest if isinstance(each, PagedBatch)))
                return run(token_ids, positions, *rest)

            self.proposer._run = watched

    def _prepare(self, scheduled: Sequence[Scheduled]) -> StepInputs:
        self._poison()
        inputs = super()._prepare(scheduled)
        self._check(scheduled, inputs)
        self.steps += 1
        return inputs

    def _poison(self) -> None:
        block_size = self.options.block_size
        live = set(range(block_size))
        for request in self._scheduler.running:
            live |= {
                request.blocks[position // block_size] * block_size + position % block_size
                for position in range(request.num_computed)
            }
        stale = torch.tensor(sorted(set(range(self.pool.num_blocks * block_size)) - live))
        self.cache.poison(stale)
        if isinstance(self.proposer, ChainProposer):
            self.proposer.cache.poison(stale)

    def _check(self, scheduled: Sequence[Scheduled], inputs: StepInputs) -> None:
        block_size = self.options.block_size
        assert sum(part.num_tokens for part in scheduled) <= self.options.max_num_batched_tokens
        assert len(scheduled) <= self.options.max_num_seqs
        owned = [block for request in self._scheduler.running for block in request.blocks]
        assert len(owned) == len(set(owned)), "a block has two owners"
        assert NULL_BLOCK not in owned
        assert not set(owned) & set(self.pool.free_blocks)
        slots = inputs.paged.write_slots.tolist()
        assert len(slots) == len(set(slots)), "two tokens are written to one slot"
        start = 0
        for part in scheduled:
            first = part.request.num_computed
            positions = inputs.positions[start : start + part.num_tokens].tolist()
            assert positions == list(range(first, first + part.num_tokens)), "positions are not consecutive"
            for position, slot in zip(positions, slots[start : start + part.num_tokens], strict=True):
                assert slot // block_size == part.request.blocks[position // block_size]
                assert slot % block_size == position % block_size
            start += part.num_tokens

    def _check_drafter(self, positions: torch.Tensor, paged: PagedBatch) -> None:
        """Every row that is no padding has a slot of its own, where its request's block table puts its position."""
        block_size = self.options.block_size
        places = {
            block: (request, index) for request in self._scheduler.running for index, block in enumerate(request.blocks)
        }
        slots = paged.write_slots.tolist()
        written = [(slot, position) for slot, position in zip(slots, positions.tolist(), strict=True) if slot]
        assert len({slot for slot, _ in written}) == len(written), "two tokens are written to one slot"
        by_request: dict[int, list[int]] = {}
        for slot, position in written:
            request, index = places[slot // block_size]
            assert index * block_size + slot % block_size == position
            by_request.setdefault(request.index, []).append(position)
        for found in by_request.values():
            assert found == list(range(found[0], found[0] + len(found))), "positions are not consecutive"
        self.drafter_passes += 1


@pytest.mark.parametrize("settings", [{}, CROWDED], ids=["roomy", "crowded"])
@pytest.mark.parametrize("method", ["none", "ngram", "draft_model", "parallel", "eagle3", "mtp"])
def test_stale_slots_are_never_read(
    method: str,
    settings: dict[str, Any],
    models: Models,
    prompts: list[tuple[int, ...]],
    expected: list[tuple[int, ...]],
) -> None:
    """The text is right, and the drafts that led to it are those of a run without poison."""
    asked = [GenerationRequest(p, max_tokens=24, ignore_eos=True) for p in prompts]
    runner = models.runner(method, WatchedRunner, **settings)
    results = runner.generate(asked)
    assert [result.token_ids for result in results] == expected
    assert results == models.runner(method, **settings).generate(asked)
    assert runner.steps > 0
    assert (runner.drafter_passes > 0) == (method not in ("none", "ngram"))
    if settings:
        assert any(result.preemptions for result in results)


@pytest.mark.parametrize("method", ["none", "ngram", "draft_model", "parallel", "eagle3", "mtp"])
def test_stale_slots_are_never_read_by_sampled_requests(
    method: str, models: Models, prompts: list[tuple[int, ...]]
) -> None:
    """More is rejected than of greedy drafts; the counter-based RNG determines the tokens."""
    asked = [
        GenerationRequest(p, max_tokens=24, temperature=1.2, top_k=20, ignore_eos=True, seed=seed)
        for seed, p in enumerate(prompts)
    ]
    expected = models.runner(method, sampler="request_state").generate(asked)
    results = models.runner(method, WatchedRunner, sampler="request_state", **CROWDED).generate(asked)
    assert [(r.token_ids, r.steps) for r in results] == [(r.token_ids, r.steps) for r in expected]
    assert any(result.preemptions for result in results)


def test_a_stale_slot_that_is_read_is_found(models: Models, prompts: list[tuple[int, ...]]) -> None:
    """The poison works: without the request's own slots the tokens are wrong."""

    class Reading(WatchedRunner):
        def _poison(self) -> None:
            if self.steps == 3:
                self.cache.poison(torch.arange(self.options.block_size, self.pool.num_blocks * self.options.block_size))

    honest = models.runner("none", WatchedRunner).generate([GenerationRequest(prompts[3], ignore_eos=True)])
    poisoned = models.runner("none", Reading).generate([GenerationRequest(prompts[3], ignore_eos=True)])
    assert poisoned[0].token_ids != honest[0].token_ids

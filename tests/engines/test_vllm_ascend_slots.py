"""The second sampler of vllm-ascend: what its `rejection_sample` is called with.

Its kernels have the tox environment vllm-ascend-next.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from verispec.engines import SamplerBatch, UnsupportedCall
from verispec.engines.adapters.vllm_ascend_slots import SlotSampler

VOCAB = 5


def make_batch() -> SamplerBatch:
    """Return a step of three requests: greedy with two drafts, sampled without drafts, sampled with one."""
    generator = torch.Generator().manual_seed(1)
    return SamplerBatch(
        logits=torch.randn(6, VOCAB, generator=generator),
        draft_token_ids=[[3, 1], [], [4]],
        temperature=torch.tensor([0.0, 0.5, 2.0]),
        draft_probs=torch.rand(3, VOCAB, generator=generator).softmax(dim=-1),
        seeds=[7, None, -9],
    )


def call(batch: SamplerBatch, limits: Any = None) -> tuple[list[list[int]], dict[str, Any]]:
    """Return the tokens of `batch`, and the arguments of the engine's function, which emits the rows' numbers."""
    seen: dict[str, Any] = {}

    def rejection_sample(**given: Any) -> tuple[torch.Tensor, torch.Tensor]:
        seen.update(given)
        ends = given["cu_num_logits"]
        return ends[:-1, None] + torch.arange(given["num_speculative_steps"] + 1), ends.diff()

    return SlotSampler(rejection_sample, limits)(batch), seen


def test_requests_are_found_by_slots() -> None:
    tokens, seen = call(make_batch())
    assert tokens == [[0, 1, 2], [3], [4, 5]]
    assert seen["cu_num_logits"].tolist() == [0, 3, 4, 6]
    assert seen["idx_mapping"].tolist() == [2, 1, 0]
    assert seen["expanded_idx_mapping"].tolist() == [2, 2, 2, 1, 0, 0]
    assert seen["pos"].tolist() == seen["expanded_local_pos"].tolist() == [0, 1, 2, 0, 0, 1]
    assert seen["draft_sampled"].tolist() == [0, 3, 1, 0, 0, 4]
    assert seen["temperature"].tolist() == [2.0, 0.5, 0.0]
    assert (seen["seed"][0].item(), seen["seed"][2].item()) == (-9, 7)


def test_distributions_are_those_of_the_batch() -> None:
    batch = make_batch()
    seen = call(batch)[1]
    assert torch.equal(seen["target_logits"][:3], batch.logits[:3])
    assert torch.equal(seen["target_logits"][3], batch.logits[3] / 0.5)
    assert torch.equal(seen["target_logits"][4:], batch.logits[4:] / 2.0)
    assert batch.draft_probs is not None
    torch.testing.assert_close((seen["draft_logits"][0, 0] / 2.0).softmax(dim=-1), batch.draft_probs[2])
    torch.testing.assert_close(seen["draft_logits"][2].softmax(dim=-1), batch.draft_probs[:2])
    assert call(replace(batch, draft_probs=None))[1]["draft_logits"] is None


def test_limits_of_a_request_reach_its_rows() -> None:
    batch = replace(make_batch(), top_k=torch.tensor([VOCAB, 2, 3], dtype=torch.int32))
    with pytest.raises(UnsupportedCall, match="code for an NPU"):
        call(batch)
    given: list[Any] = []

    def apply(logits: torch.Tensor, top_k: torch.Tensor | None, top_p: torch.Tensor | None) -> torch.Tensor:
        given.extend((top_k, top_p))
        return logits + 1

    seen = call(batch, apply)[1]
    assert (given[0].tolist(), given[1]) == ([VOCAB, VOCAB, VOCAB, 2, 3, 3], None)
    assert torch.equal(seen["target_logits"][:3], batch.logits[:3] + 1)

"""Recorded decode passes: the same tokens as without them, whatever batch fills a recorded shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from graph_runners import EagerGPURunner, EagerRunner, ReplayRunner, Replays, Tensors, tokens
from transformers import LlamaConfig

from verispec.engines.protocol.generation import GenerationRequest
from verispec.reference.models.attention import PagedBatch
from verispec.reference.models.decode_graphs import DecodeGraphs
from verispec.reference.models.kv_cache import KVCache
from verispec.reference.runners.gpu import GPURunner

if TYPE_CHECKING:
    from conftest import Models

STYLES = [
    (method, sampler, temperature)
    for method in ("none", "ngram", "draft_model", "parallel", "eagle3", "mtp")
    for sampler, temperature in (("flat", 0.0), ("flat", 0.8), ("request_state", 0.8))
]
OPTIONS: dict[str, Any] = {"dtype": "float64", "max_num_seqs": 4, "block_size": 4}
DEPTHS = ((1, 1, 3), (2, 2, 0), (3, 3, 2), (4, 4, 3))
"""K by batch size: batches of three and four fill the same recorded shape with chains of two depths."""


def shrinking(prompts: list[tuple[int, ...]], temperature: float) -> list[GenerationRequest]:
    """Requests of which later ones end first, so that smaller batches fill the shapes of larger ones."""
    return [
        GenerationRequest(prompt, max_tokens=34 - 4 * i, temperature=temperature, seed=i, ignore_eos=True)
        for i, prompt in enumerate(prompts)
    ]


@pytest.mark.parametrize(("method", "sampler", "temperature"), STYLES)
def test_replayed_passes_give_the_same_tokens(
    method: str, sampler: str, temperature: float, models: Models, prompts: list[tuple[int, ...]]
) -> None:
    requests = shrinking(prompts, temperature)
    eager = models.runner(method, EagerRunner, sampler=sampler, **OPTIONS)
    replaying = models.runner(method, ReplayRunner, sampler=sampler, **OPTIONS)
    assert isinstance(replaying, ReplayRunner)
    assert tokens(replaying, requests) == tokens(eager, requests)
    assert replaying.metrics() == eager.metrics()
    assert replaying.replays.replayed > 2 * replaying.replays.recorded > 0


@pytest.mark.parametrize(("method", "sampler", "temperature"), STYLES[3:])
def test_replayed_chains_of_each_depth_give_the_same_tokens(
    method: str, sampler: str, temperature: float, models: Models, prompts: list[tuple[int, ...]]
) -> None:
    compare_with_eager(EagerRunner, ReplayRunner, method, sampler, temperature, models, prompts)


def compare_with_eager(
    eager_kind: Any,
    graphed_kind: Any,
    method: str,
    sampler: str,
    temperature: float,
    models: Models,
    prompts: list[tuple[int, ...]],
) -> None:
    options = {**OPTIONS, "num_speculative_tokens_per_batch_size": DEPTHS}
    requests = shrinking(prompts, temperature)
    eager, graphed = (models.runner(method, kind, sampler=sampler, **options) for kind in (eager_kind, graphed_kind))
    assert tokens(graphed, requests) == tokens(eager, requests)
    assert graphed.metrics() == eager.metrics()


def test_padding_writes_to_the_null_block_alone() -> None:
    """The slots of an earlier, larger batch belong to others by now."""
    config = LlamaConfig(hidden_size=8, num_attention_heads=1, num_key_value_heads=1)
    cache = KVCache(config, 1, 64, torch.float32, torch.device("cpu"))

    def run(tensors: Mapping[str, torch.Tensor], paged: PagedBatch) -> Tensors:
        cache.layers[0].index_fill_(0, paged.write_slots, 1.0)
        return (tensors["ids"] * 10,)

    graphs = DecodeGraphs(Replays())
    for requests in (4, 4, 4, 4, 3):
        cache.layers[0].zero_()
        counts = torch.arange(requests)
        table = torch.arange(1, requests + 1, dtype=torch.int32)[:, None]
        starts, lens = torch.arange(requests + 1, dtype=torch.int32), np.ones(requests, dtype=np.int64)
        paged = PagedBatch(
            cache, counts + 8, counts * 0, table, lens, starts, torch.from_numpy(lens).to(torch.int32), lens, 8
        )
        (result,) = graphs(run, {"ids": counts}, paged)
        assert result.tolist() == (counts * 10).tolist()
    written = cache.layers[0][:, 0].nonzero()[:, 0].tolist()
    assert written == [0, 8, 9, 10]


@pytest.mark.gpu
@pytest.mark.parametrize(("method", "sampler", "temperature"), STYLES)
def test_cuda_graphs_give_the_same_tokens(
    method: str, sampler: str, temperature: float, models: Models, prompts: list[tuple[int, ...]]
) -> None:
    requests = shrinking(prompts, temperature)
    eager, graphed = (models.runner(method, kind, sampler=sampler, **OPTIONS) for kind in (EagerGPURunner, GPURunner))
    assert tokens(graphed, requests) == tokens(eager, requests)
    assert graphed.metrics() == eager.metrics()


@pytest.mark.gpu
@pytest.mark.parametrize(("method", "sampler", "temperature"), STYLES[3:])
def test_cuda_graphs_of_each_depth_give_the_same_tokens(
    method: str, sampler: str, temperature: float, models: Models, prompts: list[tuple[int, ...]]
) -> None:
    compare_with_eager(EagerGPURunner, GPURunner, method, sampler, temperature, models, prompts)


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["none", "draft_model", "parallel", "eagle3", "mtp"])
def test_cuda_graphs_of_fused_models_give_the_same_tokens(
    method: str, models: Models, prompts: list[tuple[int, ...]]
) -> None:
    """Kernels are fused in float32 alone; the second time everything that recurs is replayed, prompts' chains too."""
    requests, options = shrinking(prompts, 0.0), {**OPTIONS, "dtype": "float32"}
    eager, graphed = (models.runner(method, kind, **options) for kind in (EagerGPURunner, GPURunner))
    expected = tokens(eager, requests)
    assert [tokens(graphed, requests) for _ in range(3)] == [expected] * 3

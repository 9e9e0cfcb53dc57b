"""A closed runner keeps nothing, and a cache takes memory where it is used."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import LlamaConfig

from verispec import fixtures
from verispec.engines.protocol.generation import GenerationRequest, LoadOptions
from verispec.reference.models.kv_cache import KVCache
from verispec.reference.runners.cpu import CPURunner

TREE = ((0,), (1,), (0, 0))


@pytest.fixture
def no_collections() -> Iterator[None]:
    """Turn garbage collection off, so that a cycle keeps its objects."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sampler": "request_state"},
        {"method": "ngram"},
        {"method": "suffix"},
        {"method": "draft_model", "draft": "draft"},
        {"method": "draft_model", "draft": "draft", "num_speculative_tokens": "auto"},
        {"method": "draft_model", "draft": "draft", "draft_sample_method": "greedy", "speculative_token_tree": TREE},
        {"method": "eagle3", "draft": "eagle3"},
        {"method": "eagle3", "draft": "eagle3", "sampler": "request_state"},
        {"method": "mtp", "draft": "mtp"},
    ],
    ids=lambda options: "-".join(str(value) for value in options.values()),
)
def test_a_closed_runner_is_freed_at_once(no_collections: None, options: dict[str, Any]) -> None:
    if options.get("draft"):
        options = options | {"draft": fixtures.model(options["draft"])}
    runner = CPURunner(fixtures.model("target"), LoadOptions(max_model_len=64, **options))
    runner.generate([GenerationRequest((3, 5, 7), max_tokens=6, temperature=t, seed=1) for t in (0.0, 1.0)])
    held = [weakref.ref(held) for held in (runner, runner._model, runner.cache)]
    runner.close()
    del runner
    assert [ref() for ref in held] == [None, None, None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_cache_is_zeros_on_whole_lines(dtype: torch.dtype) -> None:
    config = LlamaConfig(hidden_size=24, num_attention_heads=3, num_key_value_heads=1)
    cache = KVCache(config, num_layers=2, num_slots=7, dtype=dtype, device=torch.device("cpu"))
    assert [(tuple(layer.shape), layer.dtype, layer.data_ptr() % 64) for layer in cache.layers] == [
        ((7, 16), dtype, 0)
    ] * 2
    assert not any(layer.any() for layer in cache.layers)
    cache.layers[0][3] = 1
    assert not cache.layers[1].any()

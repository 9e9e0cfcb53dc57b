"""Compact models compute what transformers computes, and what they cannot compute stays with transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from verispec.reference.models.attention import ATTENTION, PagedBatch
from verispec.reference.models.compact import CompactModel, compact
from verispec.reference.models.kv_cache import KVCache
from verispec.reference.runners.slots import slot_mapping

VOCAB, BLOCK = 61, 4
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}
KINDS = {
    "llama": (LlamaForCausalLM, LlamaConfig(**SIZES)),
    "llama_bias": (LlamaForCausalLM, LlamaConfig(attention_bias=True, **SIZES)),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SIZES)),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SIZES)),
}


def make(kind: type[PreTrainedModel], config: Any) -> PreTrainedModel:
    torch.manual_seed(3)
    model = kind(config).eval().requires_grad_(False)
    for name, weight in model.named_parameters():
        if name.endswith(("norm.weight", "layernorm.weight", "bias")):
            weight.add_(torch.randn_like(weight), alpha=0.3)
    return model


@pytest.mark.parametrize("name", KINDS)
def test_ragged_batch_like_transformers(name: str) -> None:
    """Prefills of three lengths, then chunks of other lengths behind them; stale slots are NaN."""
    model = make(*KINDS[name])
    sequences = [torch.randint(VOCAB, (length,)) for length in (9, 5, 13)]
    expected = [model(input_ids=sequence[None]).logits[0] for sequence in sequences]
    model.set_attn_implementation(ATTENTION)
    fast = compact(model)
    assert isinstance(fast, CompactModel)
    cache = KVCache(model.config, 2, 13 * BLOCK, torch.float32, torch.device("cpu"))
    cache.poison(torch.arange(13 * BLOCK))
    table = torch.tensor([[7, 2, 11, 0], [4, 9, 0, 0], [1, 12, 3, 8]], dtype=torch.int32)
    for bounds in ([(0, 6), (0, 1), (0, 12)], [(6, 9), (1, 5), (12, 13)]):
        lens = np.array([end - start for start, end in bounds])
        starts = torch.from_numpy(np.concatenate(([0], lens.cumsum())).astype(np.int32))
        positions = torch.cat([torch.arange(start, end) for start, end in bounds])
        ends = np.array([end for _, end in bounds])
        slots = slot_mapping(starts, positions, table, BLOCK)
        paged = PagedBatch(cache, slots, positions, table, lens, torch.from_numpy(ends), ends, BLOCK)
        tokens = torch.cat([sequence[s:e] for sequence, (s, e) in zip(sequences, bounds, strict=True)])
        got = fast(input_ids=tokens[None], paged=paged).logits[0]
        want = torch.cat([logits[s:e] for logits, (s, e) in zip(expected, bounds, strict=True)])
        # Two layers of float32 sums in another order: some 1e-6 of the largest logit.
        torch.testing.assert_close(got, want, rtol=0, atol=1e-4 * float(want.abs().max()))


def test_a_sliding_window_stays_with_transformers() -> None:
    model = make(MistralForCausalLM, MistralConfig(sliding_window=32, **SIZES))
    model.set_attn_implementation(ATTENTION)
    assert compact(model) is model


def test_another_computation_of_the_same_parts_stays_with_transformers() -> None:
    """The parts look like Llama's, but the residual stream is scaled on its way."""
    model = make(*KINDS["llama"])
    model.set_attn_implementation(ATTENTION)
    model.model.layers[0].register_forward_hook(lambda module, args, output: output * 1.5)
    assert compact(model) is model


def test_half_precision_stays_with_transformers() -> None:
    model = make(*KINDS["llama"]).bfloat16()
    model.set_attn_implementation(ATTENTION)
    assert compact(model) is model

"""Small models of several architectures, for fused models of every platform."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

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
# Sizes that the kernels treat in different ways: whole vectors, a vector and a rest, and those known to the compiler.
KINDS = {
    "llama": (LlamaForCausalLM, LlamaConfig(**SIZES)),
    "llama_bias": (LlamaForCausalLM, LlamaConfig(attention_bias=True, mlp_bias=True, **SIZES | {"head_dim": 72})),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SIZES | {"head_dim": 20, "intermediate_size": 75})),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SIZES | {"head_dim": 64})),
    "llama_128": (LlamaForCausalLM, LlamaConfig(**SIZES | {"head_dim": 128, "hidden_size": 54})),
}


def make(kind: type[PreTrainedModel], config: Any) -> PreTrainedModel:
    torch.manual_seed(3)
    model = kind(copy.deepcopy(config)).eval().requires_grad_(False)
    for name, weight in model.named_parameters():
        if name.endswith(("norm.weight", "layernorm.weight", "bias")):
            weight.add_(torch.randn_like(weight), alpha=0.3)
    return model


def at(parts: Sequence[torch.Tensor], bounds: list[tuple[int, int]]) -> torch.Tensor:
    return torch.cat([part[start:end] for part, (start, end) in zip(parts, bounds, strict=True)])


def assert_same(got: torch.Tensor, want: torch.Tensor) -> None:
    # Two layers of float32 sums in another order: some 1e-6 of the largest number.
    torch.testing.assert_close(got, want, rtol=0, atol=1e-4 * float(want.abs().max()))

"""Heads that draft from their target's hidden states, as formulas over the tensors of a checkpoint.

They share no line with the reference engine's heads, so that a fault in those does not change what is expected of them.
Sources: Li et al. 2025, "EAGLE-3", section 3; Gloeckle et al. 2024, "Multi-token Prediction", with MiMo's tensor names.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import silu
from transformers import PreTrainedModel


class DraftHead(ABC):
    """One decoder layer with its norms, in the dtype of its target; rows are [S, H] without a batch.

    Attributes:
        layers: ids of the target's states that the head reads; see `inner_states`.
    """

    layers: tuple[int, ...]

    def __init__(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        heads = config["num_attention_heads"]
        self._tensors = tensors
        self._size = config.get("head_dim") or config["hidden_size"] // heads
        self._groups = heads // config.get("num_key_value_heads", heads)
        self._eps = config.get("rms_norm_eps", 1e-6)
        theta = (config.get("rope_parameters") or config).get("rope_theta", 10000.0)
        self._frequencies = theta ** -(torch.arange(0, self._size, 2, dtype=torch.float64) / self._size)

    @abstractmethod
    def combine(self, states: Tensor) -> Tensor:
        """Map the target's states to the first hidden states."""

    @abstractmethod
    def rows(self, embeds: Tensor, hidden: Tensor, positions: Tensor, sees: Tensor) -> Tensor:
        """Return the rows' states before the last norm; row i attends to the rows that ``sees[i]`` marks."""

    @abstractmethod
    def fed(self, hidden: Tensor, *, is_wrong: bool = False) -> Tensor:
        """Return the state that the next row of a chain reads: before or after the last norm.

        The other one of the two, which is wrong, names a mistake.
        """

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits over the target's vocabulary, -inf for tokens that the head cannot draft."""

    @abstractmethod
    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Return the embeddings of the tokens that the rows of `positions` read."""

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return x * (x.square().mean(-1, keepdim=True) + self._eps).rsqrt() * self._tensors[f"{name}.weight"]

    def _linear(self, x: Tensor, name: str) -> Tensor:
        product = x @ self._tensors[f"{name}.weight"].T
        return product + self._tensors[f"{name}.bias"] if f"{name}.bias" in self._tensors else product

    def _attention(self, x: Tensor, positions: Tensor, sees: Tensor) -> Tensor:
        query, key, value = (
            self._linear(x, f"self_attn.{name}_proj").unflatten(-1, (-1, self._size)).transpose(0, 1) for name in "qkv"
        )
        query, key = self._rotated(query, positions), self._rotated(key, positions)
        key, value = (part.repeat_interleave(self._groups, dim=0) for part in (key, value))
        scores = (query @ key.mT / self._size**0.5).masked_fill(~sees, float("-inf"))
        return self._linear((scores.softmax(-1) @ value).transpose(0, 1).flatten(1), "self_attn.o_proj")

    def _rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        angles = positions[:, None].to(x.dtype) * self._frequencies.to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        turned = first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()
        return torch.cat(turned, dim=-1)

    def _mlp(self, x: Tensor) -> Tensor:
        return self._linear(silu(self._linear(x, "mlp.gate_proj")) * self._linear(x, "mlp.up_proj"), "mlp.down_proj")


class _Eagle3(DraftHead):
    def __init__(self, config: dict[str, Any], tensors: dict[str, Tensor], target: PreTrainedModel) -> None:
        super().__init__(config, tensors)
        depth = target.config.num_hidden_layers
        self.layers = tuple(config.get("eagle_aux_hidden_state_layer_ids") or (2, depth // 2, depth - 3))
        self._norm_before_residual = config.get("norm_before_residual", "speculators_model_type" in config)
        self._embedding = tensors.get("embed_tokens.weight", target.get_input_embeddings().weight)
        ids = torch.arange(len(tensors["lm_head.weight"]))
        self._ids = ids + tensors["d2t"].long() if "d2t" in tensors else ids

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        return self._embedding[ids]

    def combine(self, states: Tensor) -> Tensor:
        return self._linear(states, "fc")

    def rows(self, embeds: Tensor, hidden: Tensor, positions: Tensor, sees: Tensor) -> Tensor:
        normed = self._norm(hidden, "hidden_norm")
        x = torch.cat((self._norm(embeds, "input_layernorm"), normed), dim=-1)
        x = (normed if self._norm_before_residual else hidden) + self._attention(x, positions, sees)
        return x + self._mlp(self._norm(x, "post_attention_layernorm"))

    def fed(self, hidden: Tensor, *, is_wrong: bool = False) -> Tensor:
        return self._norm(hidden, "norm") if is_wrong else hidden

    def logits(self, hidden: Tensor) -> Tensor:
        drafted = self._linear(self._norm(hidden, "norm"), "lm_head")
        spread = drafted.new_full((len(drafted), len(self._embedding)), float("-inf"))
        spread[:, self._ids] = drafted
        return spread


class _Mtp(DraftHead):
    def __init__(
        self, config: dict[str, Any], tensors: dict[str, Tensor], target: PreTrainedModel, reads_first: bool
    ) -> None:
        super().__init__(config, tensors)
        self.layers = (target.config.num_hidden_layers,)
        self._target = target
        self._reads_first = reads_first

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        return self._target.get_input_embeddings().weight[ids] * ((positions > 0) | self._reads_first)[:, None]

    def combine(self, states: Tensor) -> Tensor:
        return states

    def rows(self, embeds: Tensor, hidden: Tensor, positions: Tensor, sees: Tensor) -> Tensor:
        both = torch.cat((self._norm(hidden, "hidden_layernorm"), self._norm(embeds, "token_layernorm")), dim=-1)
        x = self._linear(both, "input_proj")
        x = x + self._attention(self._norm(x, "input_layernorm"), positions, sees)
        return x + self._mlp(self._norm(x, "post_attention_layernorm"))

    def fed(self, hidden: Tensor, *, is_wrong: bool = False) -> Tensor:
        return hidden if is_wrong else self._norm(hidden, "final_layernorm")

    def logits(self, hidden: Tensor) -> Tensor:
        weight: Tensor = self._target.get_output_embeddings().weight
        return self._norm(hidden, "final_layernorm") @ weight.T


def draft_head(folder: Path, target: PreTrainedModel, reads_first: bool = False) -> DraftHead:
    """Read an Eagle3 head, in either published format, or an MTP layer of MiMo's, for a target.

    Args:
        folder: checkpoint of the head.
        target: model whose states and embeddings it reads.
        reads_first: True if an MTP layer's row of position 0 reads an embedding. vLLM 0.33.0 puts zeros there, and
            vllm#49938 takes them out again.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= config.get("transformer_layer_config", {}) | config.get("eagle_config", {})
    dtype, tensors = target.get_input_embeddings().weight.dtype, {}
    for path in folder.glob("*.safetensors"):
        for name, tensor in load_file(path).items():
            own = name.removeprefix("model.").removeprefix("midlayer.").removeprefix("layers.0.")
            tensors[own.removeprefix("mtp_layers.0.")] = tensor.to(dtype) if tensor.is_floating_point() else tensor
    if "MiMoForCausalLM" not in config["architectures"]:
        return _Eagle3(config, tensors, target)
    return _Mtp(config, tensors, target, reads_first)


def inner_states(target: PreTrainedModel, ids: Tensor, layers: Sequence[int]) -> Tensor:
    """Return the states that the target's layers with these ids read, side by side.

    They are [texts, tokens, len(layers) * H] for ids [texts, tokens].

    The id after the last layer stands for the final norm.
    """
    found: dict[int, Tensor] = {}
    stages = [*target.model.layers, target.model.norm]

    def keep(stage: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        found[stages.index(stage)] = args[0] if args else kwargs["hidden_states"]

    handles = [stages[layer].register_forward_pre_hook(keep, with_kwargs=True) for layer in layers]
    try:
        target(ids, logits_to_keep=1, use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return torch.cat([found[layer] for layer in layers], dim=-1)

"""Fused models: a loaded model in few kernels.

Small models spend their time between the matrix products. `fuse` takes the weights from transformers' modules, for any
Llama-like or Qwen-like model, and runs the decoder layers on a platform's own kernels (`fused_cpu`, `fused_gpu`). It
then compares the result with the model's own forward call. If they differ, transformers runs the model. It is as right,
but slower, so that a `FusedModelWarning` says it where the two should be equal.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import nn
from torch.nn.functional import embedding
from transformers import PretrainedConfig, PreTrainedModel
from transformers.activations import SiLUActivation

from .attention import PagedBatch
from .eagle3 import Eagle3Head
from .kv_cache import KVCache
from .mtp import MTPHead

_PROBE_TOKENS = 12
_EXACT = "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"
"""Classes whose layers are the fused ones. Others may have the same parts, and compute something else with them."""


class FusedModelWarning(UserWarning):
    """A fused model computes other numbers than its own modules, which run in its place, more slowly."""


class FusedOutput(NamedTuple):
    """Output of `FusedModel`: [1, rows, V] logits."""

    logits: torch.Tensor


class Norm(Protocol):
    """RMS norm over the last dimension."""

    def __call__(self, x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return the norm of `x`, written to `out` if given, which may be part of longer rows."""


class Rotation:
    """Cosines and sines of the rotary embedding at all positions, computed by the model's own module.

    Attributes:
        cosine: [positions, head size].
        sine: [positions, head size].
    """

    def __init__(self, rotary: Any, positions: int, device: torch.device) -> None:
        cosine, sine = rotary(torch.empty(0, device=device), torch.arange(positions, device=device)[None])
        self.cosine, self.sine = cosine[0].contiguous(), sine[0].contiguous()


class Parts(NamedTuple):
    """Kernels of a platform for the parts of a model.

    Attributes:
        linear: makes one matrix product of all projections of one input.
        norm: makes the norm of a module.
        layer: makes a module of a decoder layer, the norm of its input (None if the caller normalises it) and the
            rotation of its queries and keys. The module maps hidden states [1, T, H], a `PagedBatch` and the input of
            attention (None for the hidden states) to hidden states. It raises AttributeError for another layer.
    """

    linear: Callable[..., Callable[[torch.Tensor], torch.Tensor]]
    norm: Callable[[Any], Norm]
    layer: Callable[[Any, Any, Rotation], nn.Module]


def epsilon_of(norm: Any) -> float:
    """Return the epsilon of torch's or transformers' RMS norm."""
    epsilon: float = norm.eps if isinstance(norm, nn.RMSNorm) else norm.variance_epsilon
    return epsilon


@dataclass(frozen=True, slots=True)
class LayerParts:
    """A Llama-like decoder layer, taken apart; products and norms are those of a platform.

    Attributes:
        index: number of the layer in the KV cache.
        num_heads: heads of queries.
        num_kv_heads: heads of keys, and of values.
        head_dim: size of a head.
        scale: factor of the scores.
        input_norm: norm of the layer's input; None if the caller normalises it.
        query_norm: norm of each head of queries; None without it.
        key_norm: norm of each head of keys; None without it.
        output_norm: norm of the input of the MLP.
        qkv: projection to queries, keys and values.
        out: projection of the mixed values of attention.
        gate_up: gated projection of the MLP.
        down: last projection of the MLP.
    """

    index: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    input_norm: Any
    query_norm: Any
    key_norm: Any
    output_norm: Any
    qkv: Any
    out: Any
    gate_up: Any
    down: Any


def take_apart(layer: Any, input_norm: Any, linear: Callable[..., Any], norm: Callable[[Any], Any]) -> LayerParts:
    """Return the parts of a layer.

    Args:
        layer: decoder layer of transformers, or of a head.
        input_norm: norm of its input; None if the caller normalises it.
        linear: makes one product of projections.
        norm: makes a norm.

    Raises:
        AttributeError: the layer lacks a part of a Llama-like layer, or has another activation than SiLU.
    """
    attention, mlp = layer.self_attn, layer.mlp
    if not isinstance(mlp.act_fn, nn.SiLU | SiLUActivation):
        raise AttributeError(f"{type(mlp.act_fn).__name__} is not SiLU")
    query, key = attention.q_proj, attention.k_proj
    query_norm, key_norm = (getattr(attention, name, None) for name in ("q_norm", "k_norm"))
    return LayerParts(
        index=attention.layer_idx,
        num_heads=query.out_features // attention.head_dim,
        num_kv_heads=key.out_features // attention.head_dim,
        head_dim=attention.head_dim,
        scale=attention.scaling,
        input_norm=None if input_norm is None else norm(input_norm),
        query_norm=None if query_norm is None else norm(query_norm),
        key_norm=None if key_norm is None else norm(key_norm),
        output_norm=norm(layer.post_attention_layernorm),
        qkv=linear(query, key, attention.v_proj),
        out=linear(attention.o_proj),
        gate_up=linear(mlp.gate_proj, mlp.up_proj, gated=True),
        down=linear(mlp.down_proj),
    )


class FusedModel(nn.Module):
    """Replacement of a transformers causal model for runners: flattened tokens, [1, T], over paged caches.

    Raises:
        AttributeError: the model lacks a part of a Llama-like model.
    """

    def __init__(self, model: PreTrainedModel, parts: Parts) -> None:
        super().__init__()
        decoder: Any = model.model
        rotation = Rotation(decoder.rotary_emb, model.config.max_position_embeddings, model.device)
        self._embedding: torch.Tensor = decoder.embed_tokens.weight
        self.model = nn.Module()
        self.model.layers = nn.ModuleList(
            parts.layer(layer, layer.input_layernorm, rotation) for layer in decoder.layers
        )
        self._layers = list(self.model.layers)
        self._norm = parts.norm(decoder.norm)
        self._lm_head = parts.linear(model.lm_head)

    def forward(
        self, input_ids: torch.Tensor, *, paged: PagedBatch, logits_to_keep: int | torch.Tensor = 0, **_: Any
    ) -> FusedOutput:
        """Return the logits of the rows `logits_to_keep`, or of all rows for 0."""
        hidden = embedding(input_ids, self._embedding)
        for layer in self._layers:
            hidden = layer(hidden, paged)
        if isinstance(logits_to_keep, torch.Tensor):
            hidden = hidden.index_select(1, logits_to_keep)
        return FusedOutput(self._lm_head(self._norm(hidden)))


class _Drafting:
    """Methods and parts that both heads have."""

    def __init__(self, head: Any, parts: Parts) -> None:
        self.to_target = head.to_target
        self.target_logits = head.target_logits
        self.logits = parts.linear(head.lm_head)
        self._embedding: torch.Tensor = head.embed_tokens.weight
        positions: int = head.config.max_position_embeddings
        self._rotation = Rotation(head.rotary_emb, positions, self._embedding.device)


class FusedHead(_Drafting):
    """Replacement of an `Eagle3Head` for proposers, with the same methods."""

    def __init__(self, head: Eagle3Head, parts: Parts) -> None:
        super().__init__(head, parts)
        midlayer = head.midlayer
        self.combine = parts.linear(head.fc)
        self._norm_before_residual = midlayer.norm_before_residual
        self._embedding_norm = parts.norm(midlayer.input_layernorm)
        self._hidden_norm = parts.norm(midlayer.hidden_norm)
        self._layer = parts.layer(midlayer, None, self._rotation)
        self._norm = parts.norm(head.norm)

    def __call__(
        self, input_ids: torch.Tensor, hidden: torch.Tensor, position_ids: torch.Tensor, *, paged: PagedBatch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the layer; see `Eagle3Head.forward`."""
        embeds = embedding(input_ids, self._embedding)
        x = embeds.new_empty((*embeds.shape[:-1], 2 * embeds.shape[-1]))
        self._embedding_norm(embeds, x[..., : embeds.shape[-1]])
        normed = self._hidden_norm(hidden, x[..., embeds.shape[-1] :])
        residual = normed if self._norm_before_residual else hidden
        hidden = self._layer(residual.contiguous(), paged, x)
        return self._norm(hidden), hidden


class FusedMTPHead(_Drafting):
    """Replacement of an `MTPHead` for proposers, with the same methods."""

    def __init__(self, head: MTPHead, parts: Parts) -> None:
        super().__init__(head, parts)
        block = head.mtp_block
        self.combine = head.combine
        self._hidden_norm = parts.norm(head.hidden_layernorm)
        self._token_norm = parts.norm(head.token_layernorm)
        self._input = parts.linear(head.input_proj)
        self._layer = parts.layer(block, block.input_layernorm, self._rotation)
        self._norm = parts.norm(head.final_layernorm)

    def __call__(
        self, input_ids: torch.Tensor, hidden: torch.Tensor, position_ids: torch.Tensor, *, paged: PagedBatch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the layer; see `MTPHead.forward`."""
        embeds = embedding(input_ids, self._embedding).masked_fill(position_ids[..., None] == 0, 0)
        x = embeds.new_empty((*embeds.shape[:-1], 2 * embeds.shape[-1]))
        self._hidden_norm(hidden, x[..., : embeds.shape[-1]])
        self._token_norm(embeds, x[..., embeds.shape[-1] :])
        following = self._norm(self._layer(self._input(x), paged))
        return following, following


def fuse(model: PreTrainedModel, parts: Parts) -> nn.Module:
    """Return the fused form of `model`, which must use paged attention, or `model` itself if there is none.

    Raises:
        VerispecError: V-RUN-ATTENTION if the paged cache does not support the model's attention.
    """
    if model.dtype != torch.float32 or not _is_plain(model):
        return model
    try:
        candidate = FusedModel(model, parts)
    except AttributeError:
        return model
    if _same(_probe(candidate, model), _probe(model, model)):
        return candidate
    if type(model).__name__ in _EXACT:
        _warn(model)
    return model


def fuse_head(head: Eagle3Head | MTPHead, parts: Parts) -> FusedHead | FusedMTPHead | Eagle3Head | MTPHead:
    """Return the fused form of `head`, which must use paged attention, or `head` itself if there is none."""
    if head.embed_tokens.weight.dtype != torch.float32:
        return head
    try:
        candidate = FusedMTPHead(head, parts) if isinstance(head, MTPHead) else FusedHead(head, parts)
    except AttributeError:
        return head
    if _same(_probe_head(candidate, head), _probe_head(head, head)):
        return candidate
    _warn(head)
    return head


def _warn(model: nn.Module) -> None:
    warnings.warn(
        f"the fused form of {type(model).__name__} computes other numbers than its own modules, which run more slowly "
        "in its place; a kernel of verispec.reference is wrong on this machine, or the modules were changed",
        FusedModelWarning,
        stacklevel=3,
    )


def _is_plain(model: PreTrainedModel) -> bool:
    """Return True if every query sees all earlier keys and rotations depend on positions alone.

    A short probe cannot test either.
    """
    windows = {getattr(module, "sliding_window", None) for module in (model.config, *model.modules())}
    kinds = set(getattr(model.config, "layer_types", None) or ())
    rope: Any = getattr(getattr(model, "model", None), "rotary_emb", None)
    return (
        windows == {None}
        and kinds <= {"full_attention"}
        and getattr(rope, "rope_type", None) in ("default", "linear", "llama3", "yarn")
    )


def _same(ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> bool:
    """Return True if the results agree within 1e-3 of the largest number.

    Another order of summation changes about 1e-6 of it, another computation more.
    """
    return all(
        bool((one - other).abs().max() <= 1e-3 * other.abs().max()) for one, other in zip(ours, theirs, strict=True)
    )


def _probe(forward: nn.Module, model: PreTrainedModel) -> tuple[torch.Tensor]:
    """Return the logits of a few tokens."""
    positions, paged = _probe_batch(model.config, model.config.num_hidden_layers, model.device)
    token_ids = _probe_tokens(positions, model.config)
    with torch.inference_mode():
        logits: torch.Tensor = forward(
            input_ids=token_ids, position_ids=positions[None], use_cache=False, paged=paged
        ).logits
    return (logits,)


def _probe_head(forward: Any, head: Eagle3Head | MTPHead) -> tuple[torch.Tensor, ...]:
    """Return combined states, logits and the next rows' hidden states, of a few rows."""
    positions, paged = _probe_batch(head.config, 1 + head.layer_idx, head.embed_tokens.weight.device)
    aux = (
        torch.linspace(-3, 3, _PROBE_TOKENS * head.aux_width, device=positions.device).sin().view(1, _PROBE_TOKENS, -1)
    )
    with torch.inference_mode():
        states = forward.combine(aux)
        normed, following = forward(_probe_tokens(positions, head.config), states, positions[None], paged=paged)
        return states, forward.logits(normed), following


def _probe_tokens(positions: torch.Tensor, config: PretrainedConfig) -> torch.Tensor:
    return (positions[None] + 1) * 7919 % config.vocab_size


def _probe_batch(config: PretrainedConfig, layers: int, device: torch.device) -> tuple[torch.Tensor, PagedBatch]:
    """Return the positions of the probe's tokens and their batch of one request."""
    cache = KVCache(config, layers, 2 * _PROBE_TOKENS, torch.float32, device)
    positions = torch.arange(_PROBE_TOKENS, device=device)
    lens = np.array([_PROBE_TOKENS], dtype=np.int32)
    starts = torch.tensor([0, _PROBE_TOKENS], dtype=torch.int32, device=device)
    block_table = torch.ones(1, 1, dtype=torch.int32, device=device)
    return positions, PagedBatch(
        cache, positions + _PROBE_TOKENS, positions, block_table, lens, starts, starts[1:], lens, _PROBE_TOKENS
    )

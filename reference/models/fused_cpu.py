"""Fused CPU models: a loaded model in few C++ calls.

Small models spend their time between the matrix products. `compact` takes the weights from transformers' modules, for
any Llama-like or Qwen-like model, and runs each decoder layer as one C++ kernel (``csrc/decoder_layer.cpp``). It then
compares the result with the model's own forward call. If they differ, transformers runs the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import embedding
from transformers import PretrainedConfig, PreTrainedModel
from transformers.activations import SiLUActivation

from verispec.reference.cpu import kernel

from .attention import PagedBatch
from .eagle3 import Eagle3Head
from .kv_cache import KVCache
from .mtp import MTPHead

_PANEL: int = kernel("PANEL")
_PROBE_TOKENS = 12


class CompactOutput(NamedTuple):
    """Output of `CompactModel`: [1, rows, V] logits."""

    logits: torch.Tensor


class _Linear:
    """All projections of one input as one matrix product, with weights in the kernel's order (``csrc/layers.h``)."""

    def __init__(self, *projections: nn.Linear, gated: bool = False) -> None:
        stacks = [projection.weight for projection in projections]
        biases = [w.new_zeros(len(w)) if p.bias is None else p.bias for w, p in zip(stacks, projections, strict=True)]
        if not gated:
            stacks, biases = [torch.cat(stacks)], [torch.cat(biases)]
        self.outputs, inputs = stacks[0].shape
        self._panels = _in_panels(stacks).transpose(1, 2).contiguous()
        self._bias = None if all(p.bias is None for p in projections) else _in_panels(biases)
        bias = None if self._bias is None else self._bias.data_ptr()
        self.kernel = kernel("Linear")(self._panels.data_ptr(), bias, inputs, self.outputs, gated)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = x.new_empty((*x.shape[:-1], self.outputs))
        self.kernel(out.data_ptr(), x.data_ptr(), x.numel() // x.shape[-1])
        return out


def _in_panels(stacks: list[torch.Tensor]) -> torch.Tensor:
    """Cut tensors of the same length into panels with the same number of rows of each, padded with zeros at the end."""
    height = _PANEL // len(stacks)
    padding = [0, 0] * (stacks[0].ndim - 1) + [0, -len(stacks[0]) % height]
    return torch.cat([nn.functional.pad(stack, padding).unflatten(0, (-1, height)) for stack in stacks], dim=1)


class _Norm:
    """RMS norm over the last dimension."""

    def __init__(self, norm: Any) -> None:
        self._weight: torch.Tensor = norm.weight.contiguous()
        epsilon: float = norm.eps if isinstance(norm, nn.RMSNorm) else norm.variance_epsilon
        self.kernel = kernel("RMSNorm")(self._weight.data_ptr(), len(self._weight), epsilon)

    def __call__(self, x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return the norm of `x`, written to `out` if given, which may be part of longer rows."""
        x, width = x.contiguous(), x.shape[-1]
        out = torch.empty_like(x) if out is None else out
        self.kernel(out.data_ptr(), x.data_ptr(), x.numel() // width, out.stride(-2))
        return out


class _Rotation:
    """Cosines and sines of the rotary embedding at all positions, computed by the model's own module."""

    def __init__(self, rotary: Any, positions: int) -> None:
        cosine, sine = rotary(torch.empty(0), torch.arange(positions)[None])
        self._tables = cosine[0].contiguous(), sine[0].contiguous()
        self.arguments = {
            "cosine": self._tables[0].data_ptr(),
            "sine": self._tables[1].data_ptr(),
            "num_positions": positions,
        }


class CompactLayer(nn.Module):
    """A decoder layer; it is a module, so that `AuxiliaryStates` can hook it like transformers' own layers.

    `input_norm` is the norm of the layer's input, None if the caller normalises it.

    Raises:
        AttributeError: the layer lacks a part of a Llama-like layer.
    """

    def __init__(self, layer: Any, input_norm: Any, rotation: _Rotation) -> None:
        super().__init__()
        attention, mlp = layer.self_attn, layer.mlp
        if not isinstance(mlp.act_fn, nn.SiLU | SiLUActivation):
            raise AttributeError(f"{type(mlp.act_fn).__name__} is not SiLU")
        query, key, value = attention.q_proj, attention.k_proj, attention.v_proj
        self._index: int = attention.layer_idx
        norms = [
            norm if norm is None else _Norm(norm)
            for norm in (input_norm, getattr(attention, "q_norm", None), getattr(attention, "k_norm", None))
        ]
        output_norm = _Norm(layer.post_attention_layernorm)
        parts = {
            "qkv": _Linear(query, key, value),
            "out": _Linear(attention.o_proj),
            "gate_up": _Linear(mlp.gate_proj, mlp.up_proj, gated=True),
            "down": _Linear(mlp.down_proj),
        }
        self._alive = (norms, output_norm, parts, rotation)  # keep them alive: the kernel has their addresses
        self._kernel = kernel("DecoderLayer")(
            **dict(
                zip(
                    ("input_norm", "query_norm", "key_norm"),
                    (norm if norm is None else norm.kernel for norm in norms),
                    strict=True,
                )
            ),
            **{name: part.kernel for name, part in parts.items()},
            output_norm=output_norm.kernel,
            num_heads=query.out_features // attention.head_dim,
            num_kv_heads=key.out_features // attention.head_dim,
            head_dim=attention.head_dim,
            scale=attention.scaling,
            **rotation.arguments,
        )

    def forward(self, hidden: torch.Tensor, paged: PagedBatch, x: torch.Tensor | None = None) -> torch.Tensor:
        """Map [1, T, H] to the same shape; attention reads `x` instead of `hidden` if it is given."""
        out = torch.empty_like(hidden)
        x = hidden if x is None else x
        cache = paged.cache.addresses[self._index]
        self._kernel(out.data_ptr(), x.data_ptr(), hidden.data_ptr(), paged.kernel, cache)
        return out


class CompactModel(nn.Module):
    """Replacement of a transformers causal model for runners: flattened tokens, [1, T], over paged caches.

    Raises:
        AttributeError: the model lacks a part of a Llama-like model.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        decoder: Any = model.model
        rotation = _Rotation(decoder.rotary_emb, model.config.max_position_embeddings)
        self._embedding: torch.Tensor = decoder.embed_tokens.weight
        self.model = nn.Module()
        self.model.layers = nn.ModuleList(
            CompactLayer(layer, layer.input_layernorm, rotation) for layer in decoder.layers
        )
        self._layers = list(self.model.layers)
        self._norm = _Norm(decoder.norm)
        self._lm_head = _Linear(model.lm_head)

    def forward(
        self, input_ids: torch.Tensor, *, paged: PagedBatch, logits_to_keep: int | torch.Tensor = 0, **_: Any
    ) -> CompactOutput:
        """Return the logits of the rows `logits_to_keep`, or of all rows for 0."""
        hidden = embedding(input_ids, self._embedding)
        for layer in self._layers:
            hidden = layer(hidden, paged)
        if isinstance(logits_to_keep, torch.Tensor):
            hidden = hidden.index_select(1, logits_to_keep)
        return CompactOutput(self._lm_head(self._norm(hidden)))


class CompactHead:
    """Replacement of an `Eagle3Head` for proposers, with the same methods."""

    def __init__(self, head: Eagle3Head) -> None:
        midlayer = head.midlayer
        rotation = _Rotation(head.rotary_emb, head.config.max_position_embeddings)
        self.to_target = head.to_target
        self.target_logits = head.target_logits
        self._embedding = head.embed_tokens.weight
        self._norm_before_residual = midlayer.norm_before_residual
        self._embedding_norm = _Norm(midlayer.input_layernorm)
        self._hidden_norm = _Norm(midlayer.hidden_norm)
        self._layer = CompactLayer(midlayer, None, rotation)
        self._norm = _Norm(head.norm)
        self.combine = _Linear(head.fc)
        self.logits = _Linear(head.lm_head)

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


class CompactMTPHead:
    """Replacement of an `MTPHead` for proposers, with the same methods."""

    def __init__(self, head: MTPHead) -> None:
        block = head.mtp_block
        rotation = _Rotation(head.rotary_emb, head.config.max_position_embeddings)
        self.combine = head.combine
        self.to_target = head.to_target
        self.target_logits = head.target_logits
        self._embedding: torch.Tensor = head.embed_tokens.weight
        self._hidden_norm = _Norm(head.hidden_layernorm)
        self._token_norm = _Norm(head.token_layernorm)
        self._input = _Linear(head.input_proj)
        self._layer = CompactLayer(block, block.input_layernorm, rotation)
        self._norm = _Norm(head.final_layernorm)
        self.logits = _Linear(head.lm_head)

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


def compact(model: PreTrainedModel) -> nn.Module:
    """Return the fused form of `model`, which must use paged attention, or `model` itself if there is none.

    Raises:
        VerispecError: V-RUN-ATTENTION if the paged cache does not support the model's attention.
    """
    if model.dtype != torch.float32 or not _is_plain(model):
        return model
    try:
        candidate = CompactModel(model)
    except AttributeError:
        return model
    return candidate if _same(_probe(candidate, model.config), _probe(model, model.config)) else model


def compact_head(head: Eagle3Head | MTPHead) -> CompactHead | CompactMTPHead | Eagle3Head | MTPHead:
    """Return the fused form of `head`, which must use paged attention, or `head` itself if there is none."""
    if head.embed_tokens.weight.dtype != torch.float32:
        return head
    try:
        candidate = CompactMTPHead(head) if isinstance(head, MTPHead) else CompactHead(head)
    except AttributeError:
        return head
    return candidate if _same(_probe_head(candidate, head), _probe_head(head, head)) else head


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
    """Return True if the results agree within 1e-5 of the largest number.

    Another order of summation changes about 1e-6 of it, another computation more than 1e-3.
    """
    return all(
        bool((one - other).abs().max() <= 1e-3 * other.abs().max()) for one, other in zip(ours, theirs, strict=True)
    )


def _probe(forward: nn.Module, config: PretrainedConfig) -> tuple[torch.Tensor]:
    """Return the logits of a few tokens."""
    positions, paged = _probe_batch(config, config.num_hidden_layers)
    token_ids = _probe_tokens(config)
    with torch.inference_mode():
        logits: torch.Tensor = forward(
            input_ids=token_ids, position_ids=positions[None], use_cache=False, paged=paged
        ).logits
    return (logits,)


def _probe_head(forward: Any, head: Eagle3Head | MTPHead) -> tuple[torch.Tensor, ...]:
    """Return combined states, logits and the next rows' hidden states, of a few rows."""
    positions, paged = _probe_batch(head.config, 1 + head.layer_idx)
    aux = torch.linspace(-3, 3, _PROBE_TOKENS * head.aux_width).sin().view(1, _PROBE_TOKENS, -1)
    with torch.inference_mode():
        states = forward.combine(aux)
        normed, following = forward(_probe_tokens(head.config), states, positions[None], paged=paged)
        return states, forward.logits(normed), following


def _probe_tokens(config: PretrainedConfig) -> torch.Tensor:
    return torch.arange(1, _PROBE_TOKENS + 1)[None] * 7919 % config.vocab_size


def _probe_batch(config: PretrainedConfig, layers: int) -> tuple[torch.Tensor, PagedBatch]:
    """Return the positions of the probe's tokens and their batch of one request."""
    cache = KVCache(config, layers, 2 * _PROBE_TOKENS, torch.float32, torch.device("cpu"))
    positions = torch.arange(_PROBE_TOKENS)
    starts = torch.tensor([0, _PROBE_TOKENS], dtype=torch.int32)
    lens, block_table = starts[1:], torch.ones(1, 1, dtype=torch.int32)
    return positions, PagedBatch(
        cache,
        positions + _PROBE_TOKENS,
        positions,
        block_table,
        lens.numpy(),
        starts,
        lens,
        lens.numpy(),
        _PROBE_TOKENS,
    )

"""A loaded model in few calls, on the CPU: small models spend their time between the matrix products.

`compact` takes the weights out of transformers' modules, whatever Llama-like or Qwen-like model these make up, and
runs them without the machinery around them: projections that read one input are one matrix product in oneDNN's layout,
residuals are added inside products, and rotary embedding, cache write and attention are one kernel
(`PagedBatch.attend`). Nothing is taken on trust: the result is compared with the model's own forward call, and a model
that computes anything else runs as transformers runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.functional import embedding
from transformers import PreTrainedModel

from verispec.reference.cpu import kernel

from .attention import PagedBatch, Rotation
from .eagle3 import Eagle3Head
from .kv_cache import KVCache

_rms_norm = kernel("rms_norm")  # torch's own is six ops.

_ROWS_HINT = 16
"""Rows for which oneDNN chooses its layout: a batch of decoding requests. Any number of rows is right."""

_PROBE_TOKENS = 12


class CompactOutput(NamedTuple):
    """What `CompactModel` returns: [1, rows, V] logits."""

    logits: torch.Tensor


class _Product:
    """One matrix product for all projections of one input."""

    def __init__(self, *projections: nn.Linear) -> None:
        weight = torch.cat([projection.weight for projection in projections])
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS_HINT)
        biases = [weight.new_zeros(p.out_features) if p.bias is None else p.bias for p in projections]
        self._bias = None if all(p.bias is None for p in projections) else torch.cat(biases)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return product

    def plus(self, residual: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, residual, self._weight, self._bias, "add")
        return total


class _Norm:
    """RMS norm over the last dimension."""

    def __init__(self, norm: Any) -> None:
        self._weight: torch.Tensor = norm.weight.contiguous()
        self._address = self._weight.data_ptr()
        self._epsilon: float = norm.eps if isinstance(norm, nn.RMSNorm) else norm.variance_epsilon

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out, width = torch.empty_like(x), x.shape[-1]
        _rms_norm(out.data_ptr(), x.data_ptr(), self._address, x.numel() // width, width, self._epsilon)
        return out


class _Attention:
    """Attention over the paged cache; queries and keys are normed by head where the model has norms for them."""

    def __init__(self, attention: Any, rotation: Rotation) -> None:
        self._layer: int = attention.layer_idx
        self._rotation = rotation
        self._scaling: float = attention.scaling
        self._qkv = _Product(attention.q_proj, attention.k_proj, attention.v_proj)
        self._out = _Product(attention.o_proj)
        self._sizes = [p.out_features for p in (attention.q_proj, attention.k_proj, attention.v_proj)]
        self._head_dim: int = attention.head_dim
        self._norms = [_Norm(norm) for name in ("q_norm", "k_norm") if (norm := getattr(attention, name, None))]

    def __call__(self, x: torch.Tensor, residual: torch.Tensor, paged: PagedBatch) -> torch.Tensor:
        qkv = self._qkv(x)
        if self._norms:
            *parts, value = qkv.split(self._sizes, dim=-1)
            normed = [
                norm(part.unflatten(-1, (-1, self._head_dim))).flatten(-2)
                for norm, part in zip(self._norms, parts, strict=True)
            ]
            qkv = torch.cat((*normed, value), dim=-1)
        return self._out.plus(residual, paged.attend(self._layer, qkv, self._rotation, self._scaling))


class _MLP:
    """Gated MLP: down(act(gate(x)) * up(x))."""

    def __init__(self, mlp: Any) -> None:
        self._gate_up = _Product(mlp.gate_proj, mlp.up_proj)
        self._down = _Product(mlp.down_proj)
        self._activation: Callable[[torch.Tensor], torch.Tensor] = mlp.act_fn

    def __call__(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        gate, up = self._gate_up(x).chunk(2, dim=-1)
        return self._down.plus(residual, self._activation(gate) * up)


class CompactLayer(nn.Module):
    """A decoder layer; a module, so that auxiliary states can be watched here as in transformers' own layers."""

    def __init__(self, layer: Any, rotation: Rotation) -> None:
        super().__init__()
        self._input_norm = _Norm(layer.input_layernorm)
        self._attention = _Attention(layer.self_attn, rotation)
        self._output_norm = _Norm(layer.post_attention_layernorm)
        self._mlp = _MLP(layer.mlp)

    def forward(self, hidden: torch.Tensor, paged: PagedBatch) -> torch.Tensor:
        hidden = self._attention(self._input_norm(hidden), hidden, paged)
        return self._mlp(self._output_norm(hidden), hidden)


class CompactModel(nn.Module):
    """Stands for a causal model of transformers where a runner calls it: flattened tokens, [1, T], over paged caches.

    Raises:
        AttributeError: for a model that is not made up of the parts of a Llama-like one.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        decoder: Any = model.model
        rotation = _rotation(decoder.rotary_emb, model.config.max_position_embeddings)
        self._embedding: torch.Tensor = decoder.embed_tokens.weight
        self.model = nn.Module()
        self.model.layers = nn.ModuleList(CompactLayer(layer, rotation) for layer in decoder.layers)
        self._layers = list(self.model.layers)
        self._norm = _Norm(decoder.norm)
        self._lm_head = _Product(model.lm_head)

    def forward(
        self, input_ids: torch.Tensor, *, paged: PagedBatch, logits_to_keep: int | torch.Tensor = 0, **_: Any
    ) -> CompactOutput:
        hidden = embedding(input_ids, self._embedding)
        for layer in self._layers:
            hidden = layer(hidden, paged)
        if isinstance(logits_to_keep, torch.Tensor):
            hidden = hidden.index_select(1, logits_to_keep)
        return CompactOutput(self._lm_head(self._norm(hidden)))


class CompactHead:
    """Stands for an `Eagle3Head` where a proposer calls it; methods as there."""

    def __init__(self, head: Eagle3Head) -> None:
        layer: Any = head.midlayer
        self.to_target = head.to_target
        self.target_logits = head.target_logits
        self._embedding = head.embed_tokens.weight
        self._norm_before_residual = layer.norm_before_residual
        self._embedding_norm = _Norm(layer.input_layernorm)
        self._hidden_norm = _Norm(layer.hidden_norm)
        self._attention = _Attention(layer.self_attn, _rotation(head.rotary_emb, head.config.max_position_embeddings))
        self._output_norm = _Norm(layer.post_attention_layernorm)
        self._mlp = _MLP(layer.mlp)
        self._norm = _Norm(head.norm)
        self.combine = _Product(head.fc)
        self.logits = _Product(head.lm_head)

    def __call__(
        self, input_ids: torch.Tensor, hidden: torch.Tensor, position_ids: torch.Tensor, *, paged: PagedBatch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        normed = self._hidden_norm(hidden)
        x = torch.cat((self._embedding_norm(embedding(input_ids, self._embedding)), normed), dim=-1)
        hidden = self._attention(x, normed if self._norm_before_residual else hidden, paged)
        hidden = self._mlp(self._output_norm(hidden), hidden)
        return self._norm(hidden), hidden


def can_compact(dtype: torch.dtype) -> bool:
    """Whether models of this dtype can run compactly here: float32, and torch built with oneDNN."""
    return bool(dtype == torch.float32 and torch.backends.mkldnn.is_available())


def compact(model: PreTrainedModel) -> nn.Module:
    """Return what to call instead of `model`, which must be set to paged attention; `model` itself where nothing can.

    Raises:
        VerispecError: V-RUN-ATTENTION if the model's attention is none that the paged cache serves.
    """
    if not can_compact(model.dtype) or not _is_plain(model):
        return model
    try:
        candidate = CompactModel(model)
    except AttributeError:
        return model
    ours, theirs = _probe(candidate, model), _probe(model, model)
    # Other orders of summation differ by some 1e-6 of the largest logit, another computation by far more than 1e-3.
    return candidate if (ours - theirs).abs().max() <= 1e-3 * theirs.abs().max() else model


def _is_plain(model: PreTrainedModel) -> bool:
    """Whether every query sees all earlier keys, and rotations depend on positions alone: no short probe can tell."""
    windows = {getattr(module, "sliding_window", None) for module in (model.config, *model.modules())}
    kinds = set(getattr(model.config, "layer_types", None) or ())
    rope: Any = getattr(getattr(model, "model", None), "rotary_emb", None)
    return (
        windows == {None}
        and kinds <= {"full_attention"}
        and getattr(rope, "rope_type", None) in ("default", "linear", "llama3", "yarn")
    )


def _rotation(rotary: Any, positions: int) -> Rotation:
    """Cosines and sines of all positions, as the model's own embedding makes them."""
    cosine, sine = rotary(torch.empty(0), torch.arange(positions)[None])
    return Rotation(cosine[0], sine[0])


def _probe(forward: nn.Module, model: PreTrainedModel) -> torch.Tensor:
    """Logits of a few tokens."""
    config, device = model.config, torch.device("cpu")
    cache = KVCache(config, config.num_hidden_layers, 2 * _PROBE_TOKENS, torch.float32, device)
    positions = torch.arange(_PROBE_TOKENS)
    lens = np.array([_PROBE_TOKENS])
    block_table = torch.ones(1, 1, dtype=torch.int32)
    paged = PagedBatch(
        cache, positions + _PROBE_TOKENS, positions, block_table, lens, torch.from_numpy(lens), lens, _PROBE_TOKENS
    )
    token_ids = torch.arange(1, _PROBE_TOKENS + 1)[None] * 7919 % config.vocab_size
    with torch.inference_mode():
        logits: torch.Tensor = forward(
            input_ids=token_ids, position_ids=positions[None], use_cache=False, paged=paged
        ).logits
    return logits

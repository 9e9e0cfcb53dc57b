"""Fused models on a GPU: six Triton kernels per decoder layer.

They are in ``triton/_decoder_layer.py``, ``_attention.py`` and ``_linear.py``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from verispec.reference.triton._attention import attend
from verispec.reference.triton._decoder_layer import rms_norm, rotate_and_store
from verispec.reference.triton._linear import linear

from .attention import PagedBatch
from .fused import Parts, Rotation, epsilon_of, take_apart


class _Linear:
    """All projections of one input as one matrix product; a gated one returns silu(gate) * up."""

    def __init__(self, *projections: nn.Linear, gated: bool = False) -> None:
        weights = [p.weight for p in projections]
        biases = [w.new_zeros(len(w)) if p.bias is None else p.bias for w, p in zip(weights, projections, strict=True)]
        self._weight = torch.cat(weights) if len(weights) > 1 else weights[0].contiguous()
        if len(weights) > 1:  # the modules get views of it, so that memory holds each weight once
            for projection, part in zip(projections, self._weight.split([len(w) for w in weights]), strict=True):
                projection.weight.data = part
        self._bias = None if all(p.bias is None for p in projections) else torch.cat(biases)
        self._gated = gated
        self._outputs = len(self._weight) // (2 if gated else 1)

    def __call__(
        self, x: torch.Tensor, norm: _Norm | None = None, residual: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the projection of `x`, or of its norm, plus `residual` if given."""
        x = x.contiguous()
        out = x.new_empty((*x.shape[:-1], self._outputs))
        linear(
            x.view(-1, x.shape[-1]),
            self._weight,
            self._bias,
            out.view(-1, self._outputs),
            None if norm is None else norm.weight,
            0.0 if norm is None else norm.epsilon,
            residual,
            self._gated,
        )
        return out


class _Norm:
    """RMS norm over the last dimension."""

    def __init__(self, norm: Any) -> None:
        self.weight: torch.Tensor = norm.weight.contiguous()
        self.epsilon = epsilon_of(norm)

    def __call__(self, x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return the norm of `x`, written to `out` if given, which may be part of longer rows."""
        x, width = x.contiguous(), x.shape[-1]
        out = torch.empty_like(x) if out is None else out
        rows = out.as_strided((x.numel() // width, width), (out.stride(-2), 1), out.storage_offset())
        rms_norm(x.view(-1, width), self.weight, self.epsilon, rows)
        return out


class _Layer(nn.Module):
    """A decoder layer; it is a module, so that `AuxiliaryStates` can hook it like transformers' own layers.

    `input_norm` is the norm of the layer's input, None if the caller normalises it.

    Raises:
        AttributeError: the layer lacks a part of a Llama-like layer.
    """

    def __init__(self, layer: Any, input_norm: Any, rotation: Rotation) -> None:
        super().__init__()
        self._parts = parts = take_apart(layer, input_norm, _Linear, _Norm)
        self._rotation = rotation
        self._heads = (parts.num_heads, parts.num_kv_heads, parts.head_dim)
        self._head_norms: torch.Tensor | None = None
        self._epsilon = 0.0
        if parts.query_norm is not None or parts.key_norm is not None:
            self._head_norms = torch.stack((parts.query_norm.weight, parts.key_norm.weight))
            self._epsilon = parts.query_norm.epsilon

    def forward(self, hidden: torch.Tensor, paged: PagedBatch, x: torch.Tensor | None = None) -> torch.Tensor:
        """Map [1, T, H] to the same shape; attention reads `x` instead of `hidden` if it is given."""
        parts, hidden = self._parts, hidden[0]
        qkv = parts.qkv(hidden if x is None else x[0], parts.input_norm)
        cache = paged.cache.layers[parts.index]
        rotate_and_store(
            qkv,
            *self._heads,
            self._head_norms,
            self._epsilon,
            self._rotation.cosine,
            self._rotation.sine,
            paged.positions,
            paged.slot_mapping,
            cache,
        )
        mixed = qkv.new_empty((len(qkv), parts.num_heads * parts.head_dim))
        attend(
            qkv,
            mixed,
            *self._heads,
            parts.scale,
            cache,
            paged.positions,
            paged.query_start_loc,
            int(paged.query_lens.max()),
            paged.seq_lens,
            paged.block_table,
            paged.block_size,
        )
        hidden = parts.out(mixed, residual=hidden)
        following: torch.Tensor = parts.down(parts.gate_up(hidden, parts.output_norm), residual=hidden)
        return following[None]


PARTS = Parts(_Linear, _Norm, _Layer)

"""Fused models on the CPU: each decoder layer is one C++ kernel (``csrc/decoder_layer.cpp``)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from verispec.reference.cpu import kernel

from .attention import PagedBatch
from .fused import Parts, Rotation, epsilon_of, take_apart

_PANEL: int = kernel("PANEL")
_KERNELS = ("input_norm", "query_norm", "key_norm", "output_norm", "qkv", "out", "gate_up", "down")
"""Parts of a layer that have kernels of their own."""


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
        self.kernel = kernel("RMSNorm")(self._weight.data_ptr(), len(self._weight), epsilon_of(norm))

    def __call__(self, x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return the norm of `x`, written to `out` if given, which may be part of longer rows."""
        x, width = x.contiguous(), x.shape[-1]
        out = torch.empty_like(x) if out is None else out
        self.kernel(out.data_ptr(), x.data_ptr(), x.numel() // width, out.stride(-2))
        return out


class _Layer(nn.Module):
    """A decoder layer; it is a module, so that `AuxiliaryStates` can hook it like transformers' own layers.

    `input_norm` is the norm of the layer's input, None if the caller normalises it.

    Raises:
        AttributeError: the layer lacks a part of a Llama-like layer.
    """

    def __init__(self, layer: Any, input_norm: Any, rotation: Rotation) -> None:
        super().__init__()
        parts = take_apart(layer, input_norm, _Linear, _Norm)
        self._index = parts.index
        self._alive = (parts, rotation)  # keep them alive: the kernel has their addresses
        self._kernel = kernel("DecoderLayer")(
            **{name: None if (part := getattr(parts, name)) is None else part.kernel for name in _KERNELS},
            num_heads=parts.num_heads,
            num_kv_heads=parts.num_kv_heads,
            head_dim=parts.head_dim,
            scale=parts.scale,
            cosine=rotation.cosine.data_ptr(),
            sine=rotation.sine.data_ptr(),
            num_positions=len(rotation.cosine),
        )

    def forward(self, hidden: torch.Tensor, paged: PagedBatch, x: torch.Tensor | None = None) -> torch.Tensor:
        """Map [1, T, H] to the same shape; attention reads `x` instead of `hidden` if it is given."""
        out = torch.empty_like(hidden)
        x = hidden if x is None else x
        cache = paged.cache.addresses[self._index]
        self._kernel(out.data_ptr(), x.data_ptr(), hidden.data_ptr(), paged.kernel, cache)
        return out


PARTS = Parts(_Linear, _Norm, _Layer)

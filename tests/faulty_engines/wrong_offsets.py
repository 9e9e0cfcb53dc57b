"""Kernels that read a tensor at wrong offsets, as calls of the reference's kernel of one op."""

from __future__ import annotations

from typing import Any

import torch

from verispec.reference import cpu

OP = "eagle_prepare_next_token_padded"


def call_with(tokens: torch.Tensor, arguments: dict[str, Any]) -> None:
    told = {"sampled_token_ids_ptr": tokens, "stride_sampled_token_ids": tokens.stride(0)}
    cpu.op(OP)(**{**arguments, **told})


def with_offsets_of_32_bits(**arguments: Any) -> None:
    """Call the reference with what a kernel with 32-bit offsets reads: an offset past 2^31 wraps around."""
    tokens = arguments["sampled_token_ids_ptr"]
    rows, columns = tokens.shape
    offsets = torch.arange(rows)[:, None] * tokens.stride(0) + torch.arange(columns) * tokens.stride(1)
    read = tokens.clone()
    read[offsets >= 2**31] = 0
    call_with(read, arguments)


def without_strides(**arguments: Any) -> None:
    """Call the reference with what a kernel without strides reads: rows behind each other in memory."""
    tokens = arguments["sampled_token_ids_ptr"]
    read = tokens.as_strided(tokens.shape, (tokens.shape[1], 1)).clone()
    call_with(read, arguments)

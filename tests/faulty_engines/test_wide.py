"""Offsets that are computed in 32 bits, seen by clause ANY-12."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from verispec.judge import Inconclusive, Mismatch, OpUnderTest
from verispec.reference import contracts, cpu
from verispec.suites.sampler import test_every_op as every_op

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


@pytest.mark.parametrize("axis", ["first", "others"])
def test_wrapped_offsets_are_seen(axis: str) -> None:
    run = every_op.test_elements_past_2_to_the_31
    run(OpUnderTest(contracts.load(OP), cpu.op(OP)), 1, OP, axis)
    with pytest.raises(Mismatch):
        run(OpUnderTest(contracts.load(OP), with_offsets_of_32_bits), 1, OP, axis)


def without_strides(**arguments: Any) -> None:
    """Call the reference with what a kernel without strides reads: rows behind each other in memory."""
    tokens = arguments["sampled_token_ids_ptr"]
    read = tokens.as_strided(tokens.shape, (tokens.shape[1], 1)).clone()
    call_with(read, arguments)


@pytest.mark.parametrize("axis", ["first", "others"])
def test_an_op_without_strides_has_no_fault_of_offsets(axis: str) -> None:
    with pytest.raises(Inconclusive, match="wrong already with sampled_token_ids_ptr spread over 1,000 elements"):
        every_op.test_elements_past_2_to_the_31(OpUnderTest(contracts.load(OP), without_strides), 1, OP, axis)

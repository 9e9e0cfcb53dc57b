"""Offsets that are computed in 32 bits, seen by clause ANY-12."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from wrong_offsets import OP, with_offsets_of_32_bits, without_strides

from verispec.judge import Inconclusive, Mismatch, OpUnderTest
from verispec.judge._memory import PAST, wide
from verispec.reference import contracts, cpu
from verispec.suites.sampler import test_every_op_layouts as layouts


@pytest.mark.parametrize("axis", ["first", "others"])
def test_wrapped_offsets_are_seen(axis: str) -> None:
    run = layouts.test_elements_past_2_to_the_31
    run(OpUnderTest(contracts.load(OP), cpu.op(OP)), 1, OP, axis)
    with pytest.raises(Mismatch):
        run(OpUnderTest(contracts.load(OP), with_offsets_of_32_bits), 1, OP, axis)


@pytest.mark.parametrize("axis", ["first", "others"])
def test_an_op_without_strides_has_no_fault_of_offsets(axis: str) -> None:
    with pytest.raises(Inconclusive, match="wrong already with sampled_token_ids_ptr spread over 1,000 elements"):
        layouts.test_elements_past_2_to_the_31(OpUnderTest(contracts.load(OP), without_strides), 1, OP, axis)


def test_offsets_are_tested_with_integers_of_64_bits_too() -> None:
    """A wrapper copies tensors of 32 bits, so that these show nothing about offsets, and passes on those of 64 bits."""

    def copies_32_bits(**arguments: Any) -> None:
        wide = arguments["sampled_token_ids_ptr"].dtype == torch.int64
        (with_offsets_of_32_bits if wide else without_strides)(**arguments)

    with pytest.raises(Mismatch):
        layouts.test_elements_past_2_to_the_31(OpUnderTest(contracts.load(OP), copies_32_bits), 1, OP, "first")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64])
def test_an_offset_that_32_bits_cut_is_one_of_other_memory(dtype: torch.dtype) -> None:
    given = torch.arange(1, 7).to(dtype).view(3, 2)
    spread = wide(given, 0, PAST)
    assert torch.equal(spread, given)
    offset = 2 * spread.stride(0) + 1
    assert offset > PAST > spread.stride(0)
    cut = spread.as_strided((1,), (1,), spread.storage_offset() + offset - 2**32)
    assert cut.tolist() == [0]


def test_a_tensor_that_32_bits_reach_has_no_memory_before_it() -> None:
    assert wide(torch.arange(6).view(3, 2), 0, 1000).storage_offset() == 0

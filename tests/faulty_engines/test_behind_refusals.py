"""Faults behind a call that the engine refuses: the rest of the case must still see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from verispec.engines import UnsupportedCall, registry
from verispec.judge import Mismatch, OpUnderTest
from verispec.reference import contracts, cpu
from verispec.suites.sampler import test_every_op as every_op
from verispec.suites.sampler import test_every_op_chains as chains
from verispec.suites.sampler import test_every_op_large as large
from verispec.suites.sampler import test_every_op_layouts as layouts

OP = "rejection_random_sample"


class WrongAfterRefusal:
    """A kernel that refuses its first calls, and then adds 1 to the first token of rows of some length.

    Args:
        calls: number of refused calls.
        vocab: length of the rows with the fault; None for all.
    """

    def __init__(self, calls: int, vocab: int | None = None) -> None:
        self._left, self._vocab = calls, vocab

    def __call__(self, **arguments: Any) -> None:
        if self._left:
            self._left -= 1
            raise UnsupportedCall("not in this mode")
        cpu.op(OP)(**arguments)
        if self._vocab in (None, arguments["target_probs_ptr"].shape[-1]):
            arguments["output_token_ids_ptr"][0, 0] += 1


CASES: dict[str, Callable[[OpUnderTest], None]] = {
    "pairs": lambda op: every_op.test_all_pairs_of_axes(op, 1, OP, 1),
    "chains": lambda op: chains.test_long_chains_of_drafts(op, registry.resolve("reference"), 1, OP, "plain"),
    "special values": lambda op: large.test_special_values_in_large_batches(
        op, registry.resolve("reference"), 1, OP, 23, "plain"
    ),
    "dtypes": lambda op: large.test_dtypes_of_rows_past_65_536_ids(op, registry.resolve("reference"), 1, OP),
}


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_call_behind_a_refused_one(name: str) -> None:
    with pytest.raises(Mismatch, match=r"output_token_ids_ptr\[0, 0\]"):
        CASES[name](OpUnderTest(contracts.load(OP), WrongAfterRefusal(1)))
    with pytest.raises(UnsupportedCall, match="not in this mode"):
        CASES[name](OpUnderTest(contracts.load(OP), WrongAfterRefusal(10**6)))


def test_a_large_call_that_is_wrong_behind_a_refused_one() -> None:
    """The fault is one of long rows: one of few requests too shows nothing about the size."""
    kernel = WrongAfterRefusal(1, vocab=1300)
    with pytest.raises(Mismatch):
        large.test_dtypes_and_layouts_in_large_calls(
            OpUnderTest(contracts.load(OP), kernel), registry.resolve("reference"), 1, OP, "vocabulary"
        )


@pytest.mark.parametrize("end", [UnsupportedCall("draft_probs must be contiguous"), None])
def test_offsets_of_one_tensor_behind_another_that_decides_nothing(end: UnsupportedCall | None) -> None:
    """The rows of the draft are refused, or read without strides; those of the target have offsets of 32 bits."""

    def wrong_past_2_to_the_31(**arguments: Any) -> None:
        draft, target = arguments["draft_probs_ptr"], arguments["target_probs_ptr"]
        if draft is not None and not draft.is_contiguous():
            if end:
                raise end
            arguments["draft_probs_ptr"] = torch.zeros_like(draft)
        if target.stride(0) > 2**29:
            arguments["target_probs_ptr"] = torch.zeros(target.shape)
        cpu.op(OP)(**arguments)

    with pytest.raises(Mismatch):
        layouts.test_elements_past_2_to_the_31(OpUnderTest(contracts.load(OP), wrong_past_2_to_the_31), 1, OP, "first")

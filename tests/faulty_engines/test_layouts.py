"""Faults of the strides of one tensor, which all tensors of one layout hide (ANY-6)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from verispec.engines import registry
from verispec.judge import LAYOUTS, SHIFTED, Mismatch, OpCall, OpUnderTest
from verispec.reference import contracts, cpu
from verispec.suites.sampler import test_every_op as every_op
from verispec.suites.sampler import test_every_op_layouts as layouts
from verispec.suites.sampler._calls import BatchShape, make
from verispec.suites.sampler.test_every_op import check

OP = "sample_recovered_tokens"


def strides_of_another(**arguments: Any) -> None:
    """Read the draft's rows with the strides of the target's."""
    draft, target = arguments["draft_probs_ptr"], arguments["target_probs_ptr"]
    if draft is not None:
        draft = torch.as_strided(draft, draft.shape, target.stride())
    cpu.op(OP)(**{**arguments, "draft_probs_ptr": draft})


def at_even_addresses(**arguments: Any) -> None:
    """Read the draft's rows from the last address that a vector of 16 bytes may have."""
    draft = arguments["draft_probs_ptr"]
    if draft is not None:
        start = draft.storage_offset() // 4 * 4
        draft = torch.as_strided(draft, draft.shape, draft.stride(), start)
    cpu.op(OP)(**{**arguments, "draft_probs_ptr": draft})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_equal_layouts_hide_strides_of_another_tensor(layout: str) -> None:
    call = make(OP, 1, BatchShape(layouts.COUNTS, 9))
    together = dict.fromkeys(("draft_probs_ptr", "target_probs_ptr"), layout)
    check(OpUnderTest(contracts.load(OP), strides_of_another), call, layouts=together)


@pytest.mark.parametrize("layout", ["padded", "transposed"])
def test_strides_of_another_tensor_are_seen(layout: str) -> None:
    engine = registry.resolve("reference")
    layouts.test_rows_of_one_tensor(OpUnderTest(contracts.load(OP), cpu.op(OP)), engine, 1, OP, layout, "plain")
    with pytest.raises(Mismatch, match=rf"(draft|target)_probs_ptr {layout}\)"):
        layouts.test_rows_of_one_tensor(
            OpUnderTest(contracts.load(OP), strides_of_another), engine, 1, OP, layout, "plain"
        )


def test_a_shifted_tensor_is_at_an_odd_address() -> None:
    op = OpUnderTest(contracts.load(OP), cpu.op(OP))
    call = make(OP, 1, BatchShape())
    for name, view in op.arguments(OpCall(call.values, {}, {t.name: SHIFTED for t in op.contract.tensors})).items():
        assert view.is_contiguous(), name
        assert view.storage_offset() % 2 == 1, name


def test_aligned_reads_are_seen() -> None:
    engine = registry.resolve("reference")
    layouts.test_the_address_of_one_tensor(OpUnderTest(contracts.load(OP), cpu.op(OP)), engine, 1, OP)
    with pytest.raises(Mismatch, match=r"draft_probs_ptr (float32 )?shifted\)"):
        layouts.test_the_address_of_one_tensor(OpUnderTest(contracts.load(OP), at_even_addresses), engine, 1, OP)


def test_strides_that_are_ignored_after_a_hundred_calls_are_seen() -> None:
    """Without draft logits the drafts say what is left of a row; with them hardly anything depends on theirs."""
    op, left = "residual_resample", [100]

    def forgetful(**arguments: Any) -> None:
        left[0] -= 1
        drafts = arguments["draft_sampled"]
        if left[0] < 0:
            drafts = torch.as_strided(drafts, drafts.shape, (1,))
        cpu.op(op)(**{**arguments, "draft_sampled": drafts})

    engine, check_calls = registry.resolve("reference"), every_op.test_the_hundredth_call_of_each_layout
    check_calls(OpUnderTest(contracts.load(op), cpu.op(op)), engine, 1, op)
    with pytest.raises(Mismatch):
        check_calls(OpUnderTest(contracts.load(op), forgetful), engine, 1, op)


@pytest.mark.parametrize("kept_from", [0, 1])
def test_copies_that_an_engine_keeps_are_seen(kept_from: int) -> None:
    """It copies a tensor with strides in the first or second call of a layout, and reads that copy in later ones."""
    op = "verify_greedy"
    copies: dict[Any, list[torch.Tensor]] = {}

    def keeping(**arguments: Any) -> None:
        drafts = arguments["draft_sampled"]
        if not drafts.is_contiguous():
            made = copies.setdefault((drafts.shape, drafts.stride(), drafts.dtype), [])
            made.append(drafts.contiguous())
            drafts = made[min(kept_from, len(made) - 1)]
        cpu.op(op)(**{**arguments, "draft_sampled": drafts})

    engine, check_calls = registry.resolve("reference"), every_op.test_the_hundredth_call_of_each_layout
    check_calls(OpUnderTest(contracts.load(op), cpu.op(op)), engine, 1, op)
    with pytest.raises(Mismatch):
        check_calls(OpUnderTest(contracts.load(op), keeping), engine, 1, op)

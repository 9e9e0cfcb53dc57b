"""Faults of dtypes, strides and equalities that only large calls have (ANY-5 and ANY-6 in large calls)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from verispec.judge import Inconclusive, Mismatch, OpUnderTest, joined
from verispec.reference import contracts, cpu
from verispec.suites.sampler import test_every_op_large as large
from verispec.suites.sampler._calls import BatchShape, make

Op = Callable[..., None]
FAST: Any = SimpleNamespace(describe=lambda: SimpleNamespace(details={}))
"""An engine that runs in no interpreter."""
PACKED = "rejection_greedy_sample"


def under_test(function: Op, op: str = PACKED) -> OpUnderTest:
    return OpUnderTest(contracts.load(op), function)


def changed(when: Callable[[dict[str, Any]], Any], change: Callable[[dict[str, Any]], None]) -> Op:
    """Return the reference's op, which changes its arguments if they fulfil a condition."""

    def run(**arguments: Any) -> None:
        if when(arguments):
            change(arguments)
        cpu.op(PACKED)(**arguments)

    return run


def is_many(arguments: dict[str, Any]) -> bool:
    return len(arguments["cu_num_draft_tokens_ptr"]) >= 64


def read_as_dense(arguments: dict[str, Any]) -> None:
    """Read the argmax as if its elements were adjacent."""
    argmax = arguments["target_argmax_ptr"]
    arguments["target_argmax_ptr"] = argmax.as_strided((len(argmax),), (1,))


def accept_equal(arguments: dict[str, Any]) -> None:
    """Accept a draft whose number equals the rate, as ``<=`` does."""
    if arguments["uniform_probs_ptr"] is not None:
        arguments["uniform_probs_ptr"] = arguments["uniform_probs_ptr"] - 2.0**-20


@pytest.mark.parametrize(
    ("test", "more", "fault"),
    [
        (large.test_dtypes_and_layouts_in_large_calls, ("requests",), read_as_dense),
        (large.test_boundaries_in_large_batches, (), accept_equal),
    ],
)
def test_a_fault_of_large_batches_is_seen(test: Callable[..., None], more: Any, fault: Any) -> None:
    test(under_test(cpu.op(PACKED)), FAST, 1, PACKED, *more)
    with pytest.raises(Mismatch):
        test(under_test(changed(is_many, fault)), FAST, 1, PACKED, *more)


def test_a_mask_that_the_first_requests_alone_decide_is_seen() -> None:
    """The mask is dropped where the first 64 requests are all greedy."""

    def drop(arguments: dict[str, Any]) -> None:
        if bool(arguments["is_greedy_ptr"][:64].all()):
            arguments["is_greedy_ptr"] = torch.ones_like(arguments["is_greedy_ptr"])

    check = large.test_late_requests_choose_otherwise
    check(under_test(cpu.op(PACKED)), 1, PACKED, "plain")
    with pytest.raises(Mismatch):
        check(under_test(changed(is_many, drop)), 1, PACKED, "plain")


@pytest.mark.parametrize("op", ["verify_tree_greedy", "build_draft_tree", "copy_and_expand_eagle_inputs"])
def test_strides_that_large_calls_alone_ignore_are_seen(op: str) -> None:
    """Ops whose requests have places in the whole batch, or sizes of it.

    That the reference passes is for its own run of the suite: half of the time of these calls.
    """
    name = {"verify_tree_greedy": "candidates", "build_draft_tree": "selected_index"}.get(op, "target_token_ids_ptr")

    def run(**arguments: Any) -> None:
        value = arguments[name]
        if len(value) > 60_000:
            arguments[name] = value.as_strided(value.shape, torch.empty(value.shape).stride())
        cpu.op(op)(**arguments)

    with pytest.raises(Mismatch):
        large.test_dtypes_and_layouts_in_large_calls(under_test(run, op), FAST, 1, op, "requests")


@pytest.mark.parametrize(
    ("test", "more"),
    [
        (large.test_dtypes_and_layouts_in_large_calls, ("requests",)),
        (large.test_boundaries_in_large_batches, ()),
    ],
)
def test_a_fault_of_small_calls_is_left_to_their_cases(test: Callable[..., None], more: Any) -> None:
    def wrong(**arguments: Any) -> None:
        cpu.op(PACKED)(**arguments)
        arguments["output_token_ids_ptr"][0, 0] = 3_000

    with pytest.raises(Inconclusive, match="wrong already"):
        test(under_test(wrong), FAST, 1, PACKED, *more)


def test_halves_that_wide_rows_alone_read_wrongly_are_seen() -> None:
    """A kernel of wide rows that takes float16 for bfloat16."""
    op = "apply_top_k_top_p"

    def run(**arguments: Any) -> None:
        logits = arguments["logits"]
        if logits.dtype == torch.float16 and logits.numel() >= 2**16:
            arguments["logits"] = logits.view(torch.bfloat16).to(torch.float16)
        cpu.op(op)(**arguments)

    test = large.test_dtypes_and_layouts_in_large_calls
    test(under_test(cpu.op(op), op), FAST, 1, op, "vocabulary")
    with pytest.raises(Mismatch):
        test(under_test(run, op), FAST, 1, op, "vocabulary")


def test_batches_are_joined_with_rows_and_states_of_their_own() -> None:
    op = "probabilistic_rejection"
    calls = [make(op, seed, BatchShape((1, 0, 2))).values for seed in (1, 2)]
    values = joined(contracts.load(op), calls)
    assert values["cu_num_logits"].tolist() == [0, 2, 3, 6, 8, 9, 12]
    assert len(set(values["idx_mapping"].tolist())) == 6
    for i, call in enumerate(calls):
        assert np.array_equal(values["target_logits"][6 * i : 6 * i + 6], call["target_logits"][:6])
        states = values["idx_mapping"][3 * i : 3 * i + 3]
        assert np.array_equal(values["seed"][states], call["seed"][call["idx_mapping"]])


def test_every_value_of_an_axis_is_covered() -> None:
    axes: dict[str, list[Any]] = {"dtype": [1, 2, 3], "layout a": [4, 5, 6, 7], "layout b": [8]}
    rows = large.covering(axes, np.random.default_rng(1))
    assert {name: {row[name] for row in rows} for name in axes} == {name: set(values) for name, values in axes.items()}
    assert len(rows) == 4


def test_a_wrong_second_block_of_late_rows_is_seen() -> None:
    """Rows past 65,536 have a second block with a column."""
    op = "gather_draft_logits_and_target_argmax"

    def late(**arguments: Any) -> None:
        argmax = arguments["local_argmax"]
        before = argmax.clone()
        cpu.op(op)(**arguments)
        argmax[65_536:, 1:2] += (argmax != before)[65_536:, 1:2]

    check = large.test_special_values_in_large_batches
    check(under_test(cpu.op(op), op), FAST, 1, op, 66_010, "plain")
    with pytest.raises(Mismatch):
        check(under_test(late, op), FAST, 1, op, 66_010, "plain")

"""Faults that act in large batches alone, on values of a clause: seen by the joined calls of all clauses (ANY-2)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from verispec.judge import Inconclusive, Mismatch, OpUnderTest
from verispec.reference import contracts, cpu
from verispec.suites.sampler import _collected
from verispec.suites.sampler import test_every_op_again as again
from verispec.suites.sampler._calls import BatchShape, make

FAST: Any = SimpleNamespace(describe=lambda: SimpleNamespace(details={}))
"""An engine that runs in no interpreter."""
RECOVERED, GREEDY = "sample_recovered_tokens", "verify_greedy"
run_case = again.test_calls_of_its_clauses_in_large_batches


def under_test(function: Any, op: str) -> OpUnderTest:
    return OpUnderTest(contracts.load(op), function)


def nan_wins(least: int) -> Any:
    """Return the reference's op, which takes NaN for a large probability in calls with `least` draft tokens or more."""

    def run(**arguments: Any) -> None:
        probs = arguments["target_probs_ptr"]
        if len(probs) >= least:
            arguments["target_probs_ptr"] = probs.where(~probs.isnan(), 9.0)
        cpu.op(RECOVERED)(**arguments)

    return run


def test_a_clause_that_is_broken_in_large_batches_alone_is_seen() -> None:
    run_case(under_test(cpu.op(RECOVERED), RECOVERED), FAST, 1, RECOVERED)
    with pytest.raises(Mismatch):
        run_case(under_test(nan_wins(1000), RECOVERED), FAST, 1, RECOVERED)


def test_calls_that_are_wrong_alone_are_left_out() -> None:
    run_case(under_test(nan_wins(0), RECOVERED), FAST, 1, RECOVERED)


def test_an_op_that_is_always_wrong_decides_nothing() -> None:
    def run(**arguments: Any) -> None:
        cpu.op(GREEDY)(**arguments)
        arguments["num_sampled"] += 1

    with pytest.raises(Inconclusive):
        run_case(under_test(run, GREEDY), FAST, 1, GREEDY)


def test_calls_are_collected_from_every_clause_with_small_batches() -> None:
    calls = _collected.calls_of(RECOVERED, 1)
    assert len(calls) > 50
    assert any(np.isnan(call.values["target_probs_ptr"]).any() for call in calls)
    assert all(_collected.elements(call.values) <= _collected.LARGEST for call in calls)


def test_a_batch_whose_last_row_looks_at_the_next_one_is_no_copy() -> None:
    op = "gather_draft_logits_and_target_argmax"
    call = make(op, 1, BatchShape((2, 1)))
    values, _ = under_test(cpu.op(op), op).call(call.values, shapes=call.shapes)
    assert _collected.is_repeated_alike(contracts.load(op), values)
    values["expanded_local_pos"][0] = 1
    assert not _collected.is_repeated_alike(contracts.load(op), values)


def test_a_batch_with_a_place_of_the_next_one_is_no_copy() -> None:
    """The root's place past the batch emits nothing here; beside a copy it would be the place of that one's root."""
    op = "verify_tree_sampled"
    call = make(op, 1, BatchShape((2, 1)))
    values, _ = under_test(cpu.op(op), op).call(call.values, shapes=call.shapes)
    assert _collected.is_repeated_alike(contracts.load(op), values)
    values["retrieve_index"][-1, 0] = values["retrieve_index"].size
    assert not _collected.is_repeated_alike(contracts.load(op), values)

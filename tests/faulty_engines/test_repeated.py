"""Faults of large batches and of special values in them, seen by copies of a small batch (ANY-2, ANY-1, ANY-13)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from verispec.judge import Inconclusive, Mismatch, OpUnderTest
from verispec.judge._copies import is_repeatable, repeated
from verispec.reference import contracts, cpu
from verispec.suites.sampler import test_every_op as every_op
from verispec.suites.sampler import test_every_op_chains as chains
from verispec.suites.sampler import test_every_op_large as large
from verispec.suites.sampler._calls import MAKERS, BatchShape, make

Op = Callable[..., None]
FAST: Any = SimpleNamespace(describe=lambda: SimpleNamespace(details={}))
"""An engine that runs in no interpreter."""
PACKED, SLOTS, FUSED = "rejection_greedy_sample", "probabilistic_rejection", "verify_one_hot"
TREE = "verify_tree_greedy"


def wrong(op: str, output: str, place: Callable[[dict[str, Any]], Any]) -> Op:
    """Return the reference's op, with one more at the elements `place` of an output."""

    def run(**arguments: Any) -> None:
        cpu.op(op)(**arguments)
        arguments[output][place(arguments)] += 1

    return run


def passes(run: Callable[..., None], op: str, function: Op, *more: Any) -> bool:
    try:
        run(OpUnderTest(contracts.load(op), function), *more)
    except Mismatch:
        return False
    return True


@pytest.mark.parametrize(
    ("op", "output"),
    [(PACKED, "output_token_ids_ptr"), (SLOTS, "num_accepted"), (FUSED, "next_row"), (TREE, "accept_index")],
)
def test_one_wrong_request_past_65536_is_seen(op: str, output: str) -> None:
    def last(arguments: dict[str, Any]) -> Any:
        return -2 if len(arguments[output]) > 65_536 else slice(0)

    many = every_op.test_very_many_rows
    assert passes(many, op, cpu.op(op), FAST, 1, op, "plain")
    assert not passes(many, op, wrong(op, output, last), FAST, 1, op, "plain")


def nan_past_64(**arguments: Any) -> None:
    """Call the reference with 0 for NaN in the rows of later requests."""
    logits = arguments["target_logits"].clone()
    logits[200:] = torch.nan_to_num(logits[200:], nan=0.0, neginf=float("-inf"))
    cpu.op(SLOTS)(**{**arguments, "target_logits": logits})


def test_special_values_of_later_requests_are_seen() -> None:
    special = large.test_special_values_in_large_batches
    assert passes(special, SLOTS, cpu.op(SLOTS), FAST, 1, SLOTS, 460, "plain")
    assert not passes(special, SLOTS, nan_past_64, FAST, 1, SLOTS, 460, "plain")


def test_a_fault_of_small_batches_is_left_to_other_clauses() -> None:
    always = wrong(SLOTS, "num_accepted", lambda arguments: 0)
    with pytest.raises(Inconclusive):
        passes(large.test_special_values_in_large_batches, SLOTS, always, FAST, 1, SLOTS, 460, "plain")

    with pytest.raises(Mismatch):
        large.test_special_values_in_large_batches(
            OpUnderTest(contracts.load(SLOTS), always), FAST, 1, SLOTS, 23, "plain"
        )


def test_the_ninth_step_is_reached() -> None:
    """An op that stops after eight drafts, which no random batch accepts."""

    def stops(**arguments: Any) -> None:
        cpu.op(PACKED)(**arguments)
        arguments["output_token_ids_ptr"][:, 9:] = -1

    check = chains.test_long_chains_of_drafts
    assert passes(check, PACKED, cpu.op(PACKED), FAST, 1, PACKED, "plain")
    assert not passes(check, PACKED, stops, FAST, 1, PACKED, "plain")


def test_chains_without_padding_decide_alone() -> None:
    """An op that takes a padding draft for the argmax is right in chains without padding."""

    def pads(**arguments: Any) -> None:
        drafts, argmax = arguments["draft_token_ids_ptr"], arguments["target_argmax_ptr"]
        cpu.op(PACKED)(**{**arguments, "draft_token_ids_ptr": torch.where(drafts < 0, argmax.to(drafts.dtype), drafts)})

    assert passes(chains.test_long_chains_of_drafts, PACKED, pads, FAST, 1, PACKED, "plain")
    assert not passes(chains.test_long_chains_with_padding, PACKED, pads, FAST, 1, PACKED, "plain")


def test_every_output_of_a_call_in_place_is_compared() -> None:
    """An op that reads the position again, after the next one was written in its memory, has a wrong slot."""
    step = "eagle_step_slot_mapping_metadata"

    def reads_again(**arguments: Any) -> None:
        cpu.op(step)(**arguments)
        if arguments["positions_ptr"].data_ptr() == arguments["out_clamped_positions_ptr"].data_ptr():
            arguments["out_slot_mapping_ptr"][arguments["out_slot_mapping_ptr"] > 0] += 1

    check = every_op.test_an_output_in_the_memory_of_its_input
    assert passes(check, step, cpu.op(step), 1, step, 7)
    assert not passes(check, step, reads_again, 1, step, 7)


def test_copies_have_rows_and_states_of_their_own() -> None:
    contract = contracts.load(SLOTS)
    call = make(SLOTS, 1, BatchShape((1, 0, 2)))
    values, shapes = repeated(contract, call.values, call.shapes, 3)
    states = values["idx_mapping"]
    assert len(set(states.tolist())) == 9
    assert values["cu_num_logits"].tolist() == [0, 2, 3, 6, 8, 9, 12, 14, 15, 18]
    assert shapes["sampled"] == (9, 3)
    assert np.array_equal(values["seed"][states[:3]], values["seed"][states[6:]])
    assert len(values["target_logits"]) == 18


def test_copies_of_trees_have_places_of_their_own() -> None:
    contract = contracts.load("verify_tree_greedy")
    call = make("verify_tree_greedy", 1, BatchShape((1, 0, 2), special=True))
    values, shapes = repeated(contract, call.values, call.shapes, 3)
    places = values["retrieve_index"]
    assert sorted(places.ravel().tolist()) == list(range(27))
    assert np.array_equal(places[3:6], places[:3] + 9)
    assert shapes["accept_index"][0] == 9


def test_ops_whose_rows_depend_on_sizes_are_not_repeated() -> None:
    assert {op for op in MAKERS if not is_repeatable(contracts.load(op))} == {
        "compute_slot_mapping", "copy_and_expand_dflash_inputs", "copy_and_expand_eagle_inputs",
        "eagle_prepare_inputs_padded",
        "eagle_prepare_next_token_padded", "eagle_step_slot_mapping_metadata",
        "build_draft_tree",
    }  # fmt: skip


def rounded_numbers(bits: int) -> Op:
    """Return synthetic_rejection with acceptance tests of fewer bits."""
    from verispec.reference.oracle import synthetic_rejection as module
    from verispec.reference.oracle.philox import uniform

    def run(**arguments: Any) -> None:
        values = {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "uniform", lambda *place: (int(uniform(*place) * 2**bits) + 0.5) * 2.0**-bits)
            for name, value in module.synthetic_rejection(**values).items():
                arguments[name].copy_(torch.from_numpy(value))

    return run


@pytest.mark.parametrize(("bits", "seen"), [(24, True), (32, False)])
def test_numbers_of_too_few_bits_are_seen(bits: int, seen: bool) -> None:
    op = "synthetic_rejection"
    ends = every_op.test_numbers_at_the_ends_of_their_range
    assert passes(ends, op, rounded_numbers(bits), FAST, 1, op, "small") is not seen

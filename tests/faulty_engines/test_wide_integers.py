"""Faults of integers that 32 bits, or a double, do not hold (ANY-6)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from verispec.engines import UnsupportedCall, registry
from verispec.judge import Mismatch, OpUnderTest
from verispec.reference import contracts, cpu
from verispec.suites.sampler.test_every_op_values import test_integers_past_2_to_the_53 as check_wide

ENGINE = registry.resolve("reference")
NEXT, EXPAND = "eagle_prepare_next_token_padded", "expand_batch_to_tokens"
INPUTS = "copy_and_expand_eagle_inputs"
STEP = "eagle_step_slot_mapping_metadata"
GREEDY = "rejection_greedy_sample"


def backup_of_32_bits(**arguments: Any) -> None:
    """Return backup tokens through int32."""
    backup = arguments["backup_next_token_ids_ptr"]
    cpu.op(NEXT)(**{**arguments, "backup_next_token_ids_ptr": backup.to(torch.int32)})


def late_values_through_a_double(**arguments: Any) -> None:
    """Round the integers of all requests past the 64th to a double."""
    given = arguments["input_ptr"].clone()
    given[64:] = given[64:].double().to(given.dtype)
    cpu.op(EXPAND)(**{**arguments, "input_ptr": given})


def padding_of_32_bits(**arguments: Any) -> None:
    """Write the low 32 bits of the padding slot."""
    low = (arguments["PAD_ID"] + 2**31) % 2**32 - 2**31
    cpu.op(STEP)(**{**arguments, "PAD_ID": low})


def ids_compared_as_float32(**arguments: Any) -> None:
    """Accept drafts that float32 cannot tell from the argmax."""
    drafts, argmax = arguments["draft_token_ids_ptr"], arguments["target_argmax_ptr"]
    taken = torch.where(drafts.float() == argmax.float(), argmax.to(drafts.dtype), drafts)
    cpu.op(GREEDY)(**{**arguments, "draft_token_ids_ptr": taken})


@pytest.mark.parametrize(
    ("op", "fault"),
    [
        (NEXT, backup_of_32_bits),
        (EXPAND, late_values_through_a_double),
        (STEP, padding_of_32_bits),
        (GREEDY, ids_compared_as_float32),
    ],
)
def test_fewer_bits_are_seen(op: str, fault: Any) -> None:
    check_wide(OpUnderTest(contracts.load(op), cpu.op(op)), ENGINE, 1, op, "plain")
    with pytest.raises(Mismatch):
        check_wide(OpUnderTest(contracts.load(op), fault), ENGINE, 1, op, "plain")


def test_an_engine_of_production_s_dtypes_alone_is_tested() -> None:
    """Positions are cut to 16 bits; the engine refuses other integers before it could show that."""

    def takes_production(**arguments: Any) -> None:
        if arguments["query_start_loc_ptr"].dtype != torch.int32:
            raise UnsupportedCall("expected scalar type Int but found Long")
        cpu.op(INPUTS)(**arguments)

    def cuts(**arguments: Any) -> None:
        positions = arguments["target_positions_ptr"].to(torch.int16).to(torch.int64)
        takes_production(**{**arguments, "target_positions_ptr": positions})

    contract = contracts.load(INPUTS)
    with pytest.raises(UnsupportedCall):
        check_wide(OpUnderTest(contract, takes_production), ENGINE, 1, INPUTS, "plain")
    with pytest.raises(Mismatch):
        check_wide(OpUnderTest(contract, cuts), ENGINE, 1, INPUTS, "plain")

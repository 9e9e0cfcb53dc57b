"""Faults of lost bits (ANY-6, EPI-3, EPI-4), infinite noise (SRT-1), ends of a vocabulary (SRT-2, RGS-7, VGR, VTG)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from verispec.engines import UnsupportedCall
from verispec.judge import Mismatch, OpUnderTest
from verispec.reference import contracts, cpu
from verispec.suites.sampler.test_eagle_prepare_inputs_padded import test_sums_of_many_drafts as check_sums
from verispec.suites.sampler.test_eagle_prepare_inputs_padded import test_the_index_after_long_queries as check_queries
from verispec.suites.sampler.test_every_op_bits import test_integers_past_2_to_the_16 as check_bits
from verispec.suites.sampler.test_rejection_greedy_sample import test_a_padding_token_is_rejected as check_padding_token
from verispec.suites.sampler.test_sample_recovered_tokens import test_an_infinite_reciprocal_wins as check_infinite
from verispec.suites.sampler.test_sample_recovered_tokens import test_the_draft_token_never_wins as check_draft
from verispec.suites.sampler.test_verify_greedy import test_padding_tokens as check_fused_padding_tokens
from verispec.suites.sampler.test_verify_tree_greedy import VOCAB as TREE_VOCAB
from verispec.suites.sampler.test_verify_tree_greedy import test_a_padding_token as check_tree_padding

NEXT, EXPAND = "eagle_prepare_next_token_padded", "expand_batch_to_tokens"
STEP, INPUTS = "eagle_step_slot_mapping_metadata", "eagle_prepare_inputs_padded"
RECOVERED = "sample_recovered_tokens"
GREEDY, FUSED, TREE = "rejection_greedy_sample", "verify_greedy", "verify_tree_greedy"


def padding_of_16_bits(**arguments: Any) -> None:
    """Take a token whose low 16 bits are all ones for padding."""
    tokens = arguments["sampled_token_ids_ptr"]
    cpu.op(NEXT)(**{**arguments, "sampled_token_ids_ptr": torch.where(tokens & 0xFFFF == 0xFFFF, -1, tokens)})


def blocks_of_16_bits(**arguments: Any) -> None:
    """Keep the low 16 bits of block ids, and refuse ids of 64 bits."""
    blocks = arguments["block_table_ptr"]
    if blocks.dtype != torch.int32:
        raise UnsupportedCall("expected scalar type Int but found Long")
    cpu.op(STEP)(**{**arguments, "block_table_ptr": blocks & 0xFFFF})


def replacements_from_0(**arguments: Any) -> None:
    """Replace by 0 where the replacement is negative."""
    cpu.op(EXPAND)(**{**arguments, "replace_to": max(arguments["replace_to"], 0)})


@pytest.mark.parametrize("ids", ["production", "int64"])
@pytest.mark.parametrize(
    ("op", "fault"), [(NEXT, padding_of_16_bits), (STEP, blocks_of_16_bits), (EXPAND, replacements_from_0)]
)
def test_lost_bits_are_seen(op: str, fault: Any, ids: str) -> None:
    check_bits(OpUnderTest(contracts.load(op), cpu.op(op)), 1, op, ids, "plain")
    with pytest.raises(UnsupportedCall if op == STEP and ids == "int64" else Mismatch):
        check_bits(OpUnderTest(contracts.load(op), fault), 1, op, ids, "plain")


@pytest.mark.parametrize(
    ("check", "name"), [(check_queries, "query_start_loc_gpu_ptr"), (check_sums, "cu_num_draft_tokens_ptr")]
)
def test_sums_of_16_bits_are_seen(check: Any, name: str) -> None:
    def fault(**arguments: Any) -> None:
        sums = arguments[name]
        cpu.op(INPUTS)(**{**arguments, name: sums.to(torch.int16).to(sums.dtype)})

    contract = contracts.load(INPUTS)
    check(OpUnderTest(contract, cpu.op(INPUTS)))
    with pytest.raises(Mismatch):
        check(OpUnderTest(contract, fault))


@pytest.mark.parametrize("draft", ["present", "absent"])
def test_infinite_noise_that_loses_is_seen(draft: str) -> None:
    def fault(**arguments: Any) -> None:
        noise = arguments["inv_q_ptr"]
        cpu.op(RECOVERED)(**{**arguments, "inv_q_ptr": torch.where(noise.isinf(), 0, noise)})

    contract = contracts.load(RECOVERED)
    check_infinite(OpUnderTest(contract, cpu.op(RECOVERED)), 1, draft)
    with pytest.raises(Mismatch):
        check_infinite(OpUnderTest(contract, fault), 1, draft)


def test_a_draft_of_id_0_that_is_kept_is_seen() -> None:
    def fault(**arguments: Any) -> None:
        drafts = arguments["draft_token_ids_ptr"]
        cpu.op(RECOVERED)(**{**arguments, "draft_token_ids_ptr": torch.where(drafts == 0, -1, drafts)})

    contract = contracts.load(RECOVERED)
    check_draft(OpUnderTest(contract, cpu.op(RECOVERED)), 1)
    with pytest.raises(Mismatch):
        check_draft(OpUnderTest(contract, fault), 1)


@pytest.mark.parametrize("place", ["first row", "first", "middle", "last"])
@pytest.mark.parametrize("token", [0, 10])
def test_padding_that_is_read_as_an_end_of_the_vocabulary_is_seen(place: str, token: int) -> None:
    def fault(**arguments: Any) -> None:
        drafts = arguments["draft_token_ids_ptr"]
        cpu.op(GREEDY)(**{**arguments, "draft_token_ids_ptr": torch.where(drafts < 0, token, drafts)})

    contract = contracts.load(GREEDY)
    check_padding_token(OpUnderTest(contract, cpu.op(GREEDY)), 1, place)
    with pytest.raises(Mismatch):
        check_padding_token(OpUnderTest(contract, fault), 1, place)


@pytest.mark.parametrize("id_read", [0, 36])
def test_padding_that_the_fused_op_reads_as_an_end_of_the_vocabulary_is_seen(id_read: int) -> None:
    def fault(**arguments: Any) -> None:
        drafts = arguments["draft_sampled"]
        cpu.op(FUSED)(**{**arguments, "draft_sampled": torch.where(drafts < 0, id_read, drafts)})

    contract = contracts.load(FUSED)
    check_fused_padding_tokens(OpUnderTest(contract, cpu.op(FUSED)), 1, -1)
    with pytest.raises(Mismatch):
        check_fused_padding_tokens(OpUnderTest(contract, fault), 1, -1)


@pytest.mark.parametrize("place", ["first", "middle", "last"])
@pytest.mark.parametrize("id_read", [0, TREE_VOCAB - 1])
def test_padding_in_a_tree_that_is_read_as_an_end_of_the_vocabulary_is_seen(place: str, id_read: int) -> None:
    def fault(**arguments: Any) -> None:
        tokens = arguments["candidates"]
        cpu.op(TREE)(**{**arguments, "candidates": torch.where(tokens < 0, id_read, tokens)})

    contract = contracts.load(TREE)
    check_tree_padding(OpUnderTest(contract, cpu.op(TREE)), 1, place)
    with pytest.raises(Mismatch):
        check_tree_padding(OpUnderTest(contract, fault), 1, place)

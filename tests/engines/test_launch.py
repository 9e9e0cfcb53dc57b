"""Engine parameters to contract parameters, and what a caller loses on the way."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from verispec.engines import UnsupportedCall
from verispec.engines.adapters.vllm import launch
from verispec.reference import contracts

EXPAND = contracts.load("expand_batch_to_tokens")
SLOTS = contracts.load("compute_slot_mapping")
STEP = contracts.load("eagle_step_slot_mapping_metadata")
RECOVERED = contracts.load("sample_recovered_tokens")


@pytest.mark.parametrize(
    "theirs",
    [
        ["output_ptr", "input_ptr", "cu_num_tokens_ptr", "replace_from", "replace_to", "MAX_NUM_TOKENS"],
        ["output", "input", "cu_num_tokens", "replace_from", "replace_to", "max_num_tokens"],  # a dispatcher's
    ],
)
def test_names_are_matched_with_and_without_ptr_and_in_either_case(theirs: list[str]) -> None:
    assert list(launch.map_parameters(EXPAND, theirs).values()) == [p.name for p in EXPAND.params]


def test_a_renamed_parameter_is_found_but_our_own_name_comes_first() -> None:
    assert launch.map_parameters(SLOTS, ["block_size"]) == {"block_size": "KV_CACHE_BLOCK_SIZE"}
    assert launch.map_parameters(SLOTS, ["block_size", "KV_CACHE_BLOCK_SIZE"]) == {
        "KV_CACHE_BLOCK_SIZE": "KV_CACHE_BLOCK_SIZE"
    }
    assert launch.map_parameters(SLOTS, ["kv_cache_block_size"]) == {"kv_cache_block_size": "KV_CACHE_BLOCK_SIZE"}


def test_a_stride_parameter_receives_the_tensors_stride() -> None:
    table = torch.zeros(3, 5)[:, :4]
    assert launch.stride_of("table_stride", {"table": table}) == 5
    assert launch.stride_of("table_stride_1", {"table_ptr": table}) == 1
    assert launch.stride_of("TABLE_STRIDE_0", {"table": table}) == 5
    assert launch.stride_of("table_size", {"table": table}) is None


def test_what_nobody_knows_is_missing() -> None:
    with pytest.raises(launch.Missing, match="NUM_WARPS"):
        launch.value_for(EXPAND, "NUM_WARPS", {}, {"input_ptr": torch.zeros(2)})


def test_the_grid_of_recovered_tokens_reaches_the_longest_request() -> None:
    bound = {"cu_num_draft_tokens_ptr": torch.tensor([6, 6, 8])}
    assert contracts.grid(RECOVERED, bound) == (3, 6)
    assert contracts.grid(RECOVERED, {"cu_num_draft_tokens_ptr": torch.tensor([], dtype=torch.int32)}) == (0, 0)


def test_the_grid_of_the_eagle_step_covers_padding_rows() -> None:
    bound = {"positions_ptr": torch.zeros(2), "out_slot_mapping_ptr": torch.zeros(8)}
    assert contracts.grid(STEP, bound) == (8,)


def test_every_flat_op_has_a_grid() -> None:
    flat = [contracts.load(name) for name in contracts.names() if contracts.load(name).family == "flat"]
    assert [c.name for c in flat if not c.grid] == []


@pytest.mark.parametrize(
    ("passed", "wanted", "refused"),
    [
        ({"PAD_ID": -1}, {"PAD_ID": -1}, ""),
        ({"PAD_ID": -1}, {"PAD_ID": -7}, "PAD_ID=-1 for these arguments, asked for -7"),
        ({}, {"PAD_ID": -7}, "no parameter PAD_ID"),
        ({"BLOCK_SIZE": 1024}, {"BLOCK_SIZE": 8}, ""),
        ({}, {"num_tokens": 5}, ""),
    ],
)
def test_only_a_value_that_changes_results_is_a_loss(
    passed: dict[str, Any], wanted: dict[str, Any], refused: str
) -> None:
    if not refused:
        launch.reject_unsupported_arguments(SLOTS, passed, wanted, "caller")
        return
    with pytest.raises(UnsupportedCall, match=refused):
        launch.reject_unsupported_arguments(SLOTS, passed, wanted, "caller")


@pytest.mark.parametrize(("longest", "given"), [(1, 1), (3, 4), (128, 128), (1025, 2048)])
def test_an_upper_bound_is_a_power_of_two_as_callers_pass_it(longest: int, given: int) -> None:
    """vLLM's kernel takes it as the length of a block."""
    mapping = launch.map_parameters(EXPAND, ["MAX_NUM_TOKENS"])
    assert launch.value_for(EXPAND, "MAX_NUM_TOKENS", mapping, {"MAX_NUM_TOKENS": longest}) == given


def test_a_flag_that_is_off_is_no_loss_and_one_that_is_on_is() -> None:
    launch.reject_unsupported_arguments(RECOVERED, {}, {"USE_FP64_GUMBEL": False}, "caller")
    with pytest.raises(UnsupportedCall, match="USE_FP64_GUMBEL"):
        launch.reject_unsupported_arguments(RECOVERED, {}, {"USE_FP64_GUMBEL": True}, "caller")


def test_positional_and_keyword_arguments_are_bound_like_a_functions() -> None:
    named = {"MAX_NUM_TOKENS": 6, "replace_from": 4, "replace_to": 5, "cu_num_tokens_ptr": 3}
    bound = launch.positional(EXPAND, (1, 2), named)
    assert list(bound.items()) == list(zip([p.name for p in EXPAND.params], range(1, 7), strict=True))
    for args, kwargs in (((1,), {"output_ptr": 2}), ((), {"nonsense": 1}), (tuple(range(7)), {}), ((1, 2), {})):
        with pytest.raises(TypeError):
            launch.positional(EXPAND, args, kwargs)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("kernel[(n,)](a, b, FLAG=True)", launch.CallShape(2, ("FLAG",))),
        ("kernel[grid](*args)", None),
        ("kernel[grid](a, **kwargs)", None),
        ("other[grid](a)", None),
    ],
)
def test_how_a_caller_passes_arguments_is_read_from_its_source(source: str, expected: launch.CallShape | None) -> None:
    assert launch.call_shape(source, "kernel") == expected

"""Kinds of the requests and rows that are wrong, mistakes in these alone, and values of calls that write outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from changed_ops import told

from verispec.run.record import AGREEING, PARTLY, TRAITS
from verispec.suites.sampler._drafting import expanded_arguments, next_token_arguments, random_inputs, step_arguments

INPUTS, NEXT, STEP = (
    "eagle_prepare_inputs_padded",
    "eagle_prepare_next_token_padded",
    "eagle_step_slot_mapping_metadata",
)
EXPAND = "copy_and_expand_eagle_inputs"


def test_requests_of_one_draft_are_named() -> None:
    counts = np.array([3, 1, 2, 0, 5, 1, 4, 2, 1, 3] * 4)

    def change(arguments: dict[str, Any]) -> None:
        arguments["token_indices_to_sample_ptr"][torch.from_numpy(counts == 1)] += 1000

    failure = told(INPUTS, random_inputs(np.random.default_rng(2), counts), change)
    assert "wrong only in requests of one draft" in failure.message


def test_requests_at_the_limit_are_named() -> None:
    positions = np.array([3, 62, 63, 5, 63, 17, 63, 40, 63, 30] * 3)
    values = step_arguments(np.random.default_rng(2), positions, max_model_len=64)

    def change(arguments: dict[str, Any]) -> None:
        arguments["seq_lens_ptr"][torch.from_numpy(positions == 63)] += 5

    assert "wrong only where positions_ptr is max_model_len - 1" in told(STEP, values, change).message


def test_requests_of_no_kind_are_not_named() -> None:
    counts = np.array([3, 1, 2, 0, 5, 1, 4, 2, 1, 3] * 4)
    wrong = torch.from_numpy(np.random.default_rng(8).permutation(40)[:9].copy())

    def change(arguments: dict[str, Any]) -> None:
        arguments["token_indices_to_sample_ptr"][wrong] += torch.arange(9, dtype=torch.int32) ** 2 + 1000

    failure = told(INPUTS, random_inputs(np.random.default_rng(2), counts), change)
    assert "wrong only in" not in failure.message
    assert "wrong only where" not in failure.message


def test_a_small_call_names_no_kind_and_keeps_all_of_them() -> None:
    def change(arguments: dict[str, Any]) -> None:
        arguments["token_indices_to_sample_ptr"][1] += 1000

    failure = told(INPUTS, random_inputs(np.random.default_rng(2), [3, 1, 2]), change)
    assert "one draft" not in failure.message
    assert failure.details[TRAITS]["wrong only in requests of one draft"] == [0.48, 1.0]


def test_a_row_that_ends_at_its_first_gap() -> None:
    rows = np.array([[5, -1, 7], [1, 2, -1], [4, -1, 9]])

    def change(arguments: dict[str, Any]) -> None:
        arguments["next_token_ids_ptr"][[0, 2]] = torch.tensor([5, 4], dtype=torch.int32)
        arguments["valid_sampled_tokens_count_ptr"][[0, 2]] = 1

    failure = told(NEXT, next_token_arguments(rows), change)
    assert "as if rows of sampled_token_ids_ptr ended at their first -1" in failure.message


def test_a_misread_input_of_some_requests_gives_their_wrong_values() -> None:
    values = next_token_arguments(np.full((12, 2), -1), backup=np.arange(12) * 7 % 12 + 50)

    def change(arguments: dict[str, Any]) -> None:
        arguments["next_token_ids_ptr"][[10, 11]] = arguments["backup_next_token_ids_ptr"][0]

    failure = told(NEXT, values, change)
    assert "the wrong values are" not in failure.message  # two equal values have many sources
    assert "backup_next_token_ids_ptr were read at the first request" in failure.details[PARTLY]
    assert failure.details[AGREEING] == []

    def two(arguments: dict[str, Any]) -> None:
        arguments["next_token_ids_ptr"][[4, 11]] = arguments["backup_next_token_ids_ptr"][[4 % 4, 11 % 4]] * 0 + 50
        arguments["next_token_ids_ptr"][9] = arguments["backup_next_token_ids_ptr"][0] + 1

    assert "the wrong values are as if" not in told(NEXT, values, two).message


def test_a_call_that_writes_outside_tells_its_first_wrong_value() -> None:
    values = expanded_arguments(np.random.default_rng(2), [3, 5, 4], p=2, shift=False)

    def change(arguments: dict[str, Any]) -> None:
        ids = arguments["out_input_ids_ptr"]
        ids[2] += 1
        torch.as_strided(ids, (1,), (1,), ids.storage_offset() + len(ids)).fill_(7)

    failure = told(EXPAND, values, change)
    assert failure.kind == "outside"
    assert failure.message.startswith("the call wrote 1 element outside out_input_ids_ptr; out_input_ids_ptr[2] is ")


def test_a_call_that_is_right_but_for_memory_outside_tells_that_alone() -> None:
    values = expanded_arguments(np.random.default_rng(2), [3, 5, 4], p=2, shift=False)

    def change(arguments: dict[str, Any]) -> None:
        ids = arguments["out_input_ids_ptr"]
        torch.as_strided(ids, (1,), (1,), ids.storage_offset() + len(ids)).fill_(7)

    assert told(EXPAND, values, change).message == "the call wrote 1 element outside out_input_ids_ptr"


def test_a_count_that_is_kept_between_calls() -> None:
    kept = [0]

    def change(arguments: dict[str, Any]) -> None:
        kept[0] += 1
        arguments["valid_sampled_tokens_count_ptr"][0] += kept[0]

    message = told(NEXT, next_token_arguments(np.array([[5], [7]])), change).message
    assert message.endswith("two more of the same call differ: it depends on calls, threads or memory beside it)")


def test_a_value_that_memory_outside_decides_is_not_kept_between_calls() -> None:
    def change(arguments: dict[str, Any]) -> None:
        ids = arguments["sampled_token_ids_ptr"]
        behind = torch.as_strided(ids, (1,), (1,), ids.storage_offset() + ids.numel())
        arguments["next_token_ids_ptr"][0] = behind[0]

    assert "two more" not in told(NEXT, next_token_arguments(np.array([[5], [7]])), change).message

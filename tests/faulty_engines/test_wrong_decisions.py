"""Wrong decisions of drafts by their numbers, repeated values, values right modulo a number, and other comparisons."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from changed_ops import told

from verispec.cases.batches import random_batch
from verispec.run.record import TRAITS
from verispec.suites.sampler._drafting import expanded_arguments, step_arguments
from verispec.suites.sampler._rejection import random_arguments, recovered_arguments

RANDOM, RECOVERED = "rejection_random_sample", "sample_recovered_tokens"
EXPAND, STEP = "copy_and_expand_eagle_inputs", "eagle_step_slot_mapping_metadata"


def test_drafts_whose_probability_is_small() -> None:
    """Each draft of a small probability is decided otherwise; what follows it has no part in the trait."""
    values = random_arguments(random_batch(np.random.default_rng(3), [2, 4, 1, 3] * 30, 40))
    q = values["draft_probs_ptr"][np.arange(len(values["draft_token_ids_ptr"])), values["draft_token_ids_ptr"]]
    starts = np.concatenate([[0], values["cu_num_draft_tokens_ptr"][:-1]])

    def change(arguments: dict[str, Any]) -> None:
        for row, start, end in zip(
            arguments["output_token_ids_ptr"], starts, values["cu_num_draft_tokens_ptr"], strict=True
        ):
            for place in range(end - start):
                if row[place] >= 0 and q[start + place] < 0.001:
                    row[place] = 39 if row[place] != 39 else 38
                    row[place + 1 :] = 7

    failure = told(RANDOM, values, change)
    assert "wrong only where draft_probs_ptr of the draft is below 0.001" in failure.details[TRAITS]
    assert "wrong only where uniform_probs_ptr is below 0.1" not in failure.details[TRAITS]


def test_bonus_tokens_tell_nothing_of_drafts() -> None:
    values = random_arguments(random_batch(np.random.default_rng(3), [0, 2, 0, 1] * 9, 40))

    def change(arguments: dict[str, Any]) -> None:
        arguments["output_token_ids_ptr"][0, 0] += 1

    traits = told(RANDOM, values, change).details[TRAITS]
    assert "wrong only in requests without drafts" in traits
    assert not any("of the draft" in text for text in traits)


def test_rows_whose_right_token_is_likely() -> None:
    values = recovered_arguments(random_batch(np.random.default_rng(4), [2] * 60, 8))
    values["target_probs_ptr"][::5] = np.eye(8, dtype=np.float32)[np.arange(24) % 8]

    def change(arguments: dict[str, Any]) -> None:
        arguments["output_token_ids_ptr"][::5] = 9

    assert "target_probs_ptr of the right token is above 0.99" in told(RECOVERED, values, change).message


def test_values_that_are_those_before_again() -> None:
    values = expanded_arguments(np.random.default_rng(2), [3, 5, 4], p=4, shift=False)

    def change(arguments: dict[str, Any]) -> None:
        positions = arguments["out_positions_ptr"]
        positions[4:6] = positions[3]

    assert "each wrong value is that of the place before again" in told(EXPAND, values, change).message


def test_values_that_are_right_modulo_a_number() -> None:
    positions = np.array([3, 62, 40, 5, 21, 17])
    values = step_arguments(np.random.default_rng(2), positions, max_model_len=64)
    size = values["block_size"]

    def change(arguments: dict[str, Any]) -> None:
        arguments["out_slot_mapping_ptr"][:6] += size * torch.arange(1, 7)

    assert "right modulo block_size" in told(STEP, values, change).message

    def other(arguments: dict[str, Any]) -> None:
        arguments["out_slot_mapping_ptr"][:6] += size * torch.arange(1, 7) + 1

    assert "modulo" not in told(STEP, values, other).message


def test_an_equality_that_holds_for_smaller_numbers() -> None:
    values = {
        "output_ptr": np.zeros(6, np.int64),
        "input_ptr": np.array([5, 9, 2, 9, 7, 12]),
        "cu_num_tokens_ptr": np.arange(1, 7, dtype=np.int32),
        "replace_from": 9,
        "replace_to": -3,
        "MAX_NUM_TOKENS": 1,
    }

    def change(arguments: dict[str, Any]) -> None:
        output = arguments["output_ptr"]
        output[arguments["input_ptr"] <= 9] = -3

    assert "`value == wanted` were `value <= wanted`" in told("expand_batch_to_tokens", values, change).message

"""Combinations of dtypes, layouts and modes, seen by clause ANY-6, which names the one that fails."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from verispec.judge import Mismatch, OpUnderTest
from verispec.reference import contracts, cpu
from verispec.suites.sampler import test_every_op as every_op
from verispec.suites.sampler._calls import BatchShape
from verispec.suites.sampler._combinations import combination

OP = "eagle_prepare_next_token_padded"


def without_strides(**arguments: Any) -> None:
    """Call the reference with what a kernel that takes every tensor for a dense one reads."""
    tokens = arguments["sampled_token_ids_ptr"]
    read = torch.as_strided(tokens, tokens.shape, (tokens.shape[1], 1))
    cpu.op(OP)(**{**arguments, "sampled_token_ids_ptr": read})


def test_a_failing_combination_is_named() -> None:
    layouts = r"\(\d+ requests, vocabulary \d+.*, sampled_token_ids_ptr (int32 |int64 )?(gapped|padded|transposed)"
    with pytest.raises(Mismatch, match=layouts) as caught:
        every_op.test_all_pairs_of_axes(OpUnderTest(contracts.load(OP), without_strides), 1, OP, 1)
    assert caught.value.failure.message.endswith(")")


def test_what_is_usual_is_not_named() -> None:
    contract = contracts.load("rejection_greedy_sample")
    plain = {tensor.name: tensor.production or tensor.dtypes[0] for tensor in contract.tensors}
    dense = dict.fromkeys(plain, "dense")
    assert combination(contract, BatchShape((1, 2), 33), plain, dense) == "2 requests, vocabulary 33"
    name = "cu_num_draft_tokens_ptr"
    other = "int64" if plain[name] == "int32" else "int32"
    unusual = combination(contract, BatchShape((1,), 2, False, True), {**plain, name: other}, {**dense, name: "gapped"})
    assert unusual == (f"1 request, vocabulary 2, no draft probabilities, synthetic, {name} {other} gapped")

"""A failing call gets small and keeps failing in the same way, for every op, within its contract."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from verispec.cases.batches import random_batch
from verispec.cases.request_state import random_requests
from verispec.judge import Mismatch, OpCall, OpUnderTest
from verispec.reference import contracts, oracle
from verispec.saved_calls.shrink import shrunk
from verispec.saved_calls.smaller import size, variants
from verispec.suites.sampler._rejection import random_arguments

EXPAND = contracts.load("expand_batch_to_tokens")
RANDOM = contracts.load("rejection_random_sample")


def op_with(name: str, spoil: Any) -> OpUnderTest:
    """Return an op that writes the oracle's outputs, changed by `spoil` of the inputs and outputs."""
    specification = oracle.load(name).__wrapped__  # type: ignore[attr-defined]  # calls of the guarded one fail

    def function(**arguments: Any) -> None:
        given = {k: v.numpy().copy() if hasattr(v, "numpy") else v for k, v in arguments.items()}
        for output, values in specification(**given).items():
            spoil(given, values)
            arguments[output].numpy()[...] = values

    return OpUnderTest(contracts.load(name), function)


def failing(op: OpUnderTest, call: OpCall) -> Mismatch:
    with pytest.raises(Mismatch) as caught:
        op.check(call)
    return caught.value


def expand(counts: list[int], layout: str = "dense") -> OpCall:
    rng = np.random.default_rng(1)
    values = {
        "input_ptr": rng.random(len(counts)),
        "cu_num_tokens_ptr": np.cumsum(counts),
        "replace_from": 0,
        "replace_to": 1,
        "MAX_NUM_TOKENS": 128,
    }
    return OpCall(values, {}, {"input_ptr": layout}, {"output_ptr": (sum(counts) + 3,)})


def test_one_wrong_token_leaves_one_request() -> None:
    def spoil(given: Any, output: Any) -> None:
        big = np.flatnonzero(given["input_ptr"] > 0.9)  # one of the requests
        if len(big):
            starts = np.concatenate([[0], given["cu_num_tokens_ptr"]])
            output[starts[big[0]] : starts[big[0] + 1]] = 7

    op, call = op_with("expand_batch_to_tokens", spoil), expand([3, 2, 4, 0, 5, 1, 3, 2], "gapped")
    smallest, failure = shrunk(op, call, failing(op, call).failure)
    assert smallest.values["cu_num_tokens_ptr"].tolist() == [1]
    assert smallest.values["input_ptr"].tolist() == [1.0]
    assert (smallest.values["MAX_NUM_TOKENS"], dict(smallest.layouts)) == (1, {})
    assert failure.message.startswith("output_ptr[0] is 7.0, expected 1.0")


def test_the_layout_stays_where_it_matters() -> None:
    def function(**arguments: Any) -> None:
        op_with("expand_batch_to_tokens", lambda given, out: None).function(**arguments)
        if arguments["input_ptr"].stride() != (1,):
            arguments["output_ptr"][0] = 7

    op, call = OpUnderTest(EXPAND, function), expand([3, 4, 2], "gapped")
    smallest, _ = shrunk(op, call, failing(op, call).failure)
    assert dict(smallest.layouts) == {"input_ptr": "gapped"}


def test_a_failure_never_becomes_another_one() -> None:
    """The op loses token 0 of long requests, and raises for a single request."""

    def spoil(given: Any, output: Any) -> None:
        if len(given["cu_num_tokens_ptr"]) == 1:
            raise RuntimeError("one request")
        output[0] = 7

    op, call = op_with("expand_batch_to_tokens", spoil), expand([3, 4, 2])
    smallest, failure = shrunk(op, call, failing(op, call).failure)
    assert failure.kind == "value"
    assert len(smallest.values["cu_num_tokens_ptr"]) == 2


def test_a_padding_token_stays_beside_the_row_that_it_reads() -> None:
    def spoil(given: Any, output: Any) -> None:
        if -1 in given["draft_token_ids_ptr"][1:] and output.size:
            output[-1, 0] = 99

    batch = random_batch(np.random.default_rng(3), [3, 2, 0, 4], 11, draft=True)
    batch.draft_token_ids[6] = -1
    op, call = op_with("rejection_random_sample", spoil), OpCall(random_arguments(batch))
    smallest, _ = shrunk(op, call, failing(op, call).failure)
    ids = smallest.values["draft_token_ids_ptr"].tolist()
    assert (len(ids), ids[1]) == (2, -1)
    assert smallest.values["target_probs_ptr"].shape == (2, 2)
    assert smallest.values["vocab_size"] == 2
    np.testing.assert_allclose(smallest.values["draft_probs_ptr"].sum(axis=1), 1.0, atol=1e-6)


def test_what_only_guards_show_is_not_taken_for_it() -> None:
    """The op reads one element before its input: the first row would show it under guards alone."""

    def function(**arguments: Any) -> None:
        op_with("expand_batch_to_tokens", lambda given, out: None).function(**arguments)
        values = arguments["input_ptr"]
        before = values.as_strided((1,), (1,), values.storage_offset() - 1)
        if before[0] > 0:
            arguments["output_ptr"][0] = 7
        if len(values) > 1 and values[1] > 0:
            arguments["output_ptr"][1] = 7

    op, call = OpUnderTest(EXPAND, function), expand([3, 4, 2])
    found = failing(op, call)
    assert not op.under_guards_alone
    smallest, _ = shrunk(op, call, found.failure)
    assert len(smallest.values["input_ptr"]) == 2


@pytest.mark.parametrize("counts", [[], [0], [2, 0, 3], [1] * 9], ids=str)
def test_every_variant_keeps_to_the_contract(counts: list[int]) -> None:
    batch = random_batch(np.random.default_rng(3), counts, 7, draft=True)
    call = OpCall(random_arguments(batch, rates=np.full(max([*counts, 1]), 0.5)))
    op = op_with("rejection_random_sample", lambda given, out: None)
    seen = 0
    for variant in variants(RANDOM, call):
        op.check(variant)
        ids = np.asarray(variant.values["draft_token_ids_ptr"])
        assert ids.max(initial=0) < variant.values["vocab_size"]
        assert size(variant) != size(call)
        seen += 1
    assert seen > 3 or not counts


def test_every_request_keeps_the_row_of_its_bonus_token() -> None:
    contract = contracts.load("verify_one_hot")
    batch = random_requests(np.random.default_rng(3), (2, 0, 1), 7, draft=False, temperature=1.0)
    call = OpCall(batch.arguments(contract), {}, {}, {"sampled": (batch.requests, batch.columns)})
    rows = [np.diff(variant.values["cu_num_logits"]) for variant in variants(contract, call)]
    assert min(map(min, filter(len, rows))) == 1
    assert {tuple(lengths) for lengths in rows} >= {(2, 1, 2), (3, 1, 1)}, "drafts go one by one"

"""Requirements of eagle_prepare_inputs_padded (contract EPI)."""

from __future__ import annotations

import numpy as np

from verispec.cases import case
from verispec.cases.batches import COUNTS
from verispec.cases.strategies import DrawnCall, explore, structures
from verispec.judge import OpUnderTest, assert_same
from verispec.reference import contracts
from verispec.suites.sampler._drafting import inputs_arguments as arguments
from verispec.suites.sampler._drafting import random_inputs as random_arguments
from verispec.suites.sampler._rejection import integers

CONTRACT = contracts.load("eagle_prepare_inputs_padded")
REACH = "every step of an EAGLE or draft-model drafter goes through this kernel"


@case("EPI-1", counts=["one", "even", "ragged", "wide", "longest"], reach=REACH)
def test_rejected_tokens(op: OpUnderTest, seed: int, counts: str) -> None:
    op.check_outputs(random_arguments(np.random.default_rng(seed), COUNTS[counts]))


@case("EPI-1", valid=["all", "one", "none"], reach=REACH)
def test_extreme_counts(op: OpUnderTest, valid: str) -> None:
    """A discarded request has no valid token."""
    counts = np.array([3, 1, 5])
    op.check_outputs(arguments(counts, {"all": counts + 1, "one": [1, 1, 1], "none": [0, 0, 0]}[valid]))


@case("EPI-2", valid=[0, 1, 5], reach=lambda p: REACH if p["valid"] <= 1 else None)
def test_without_drafts_nothing_is_rejected(op: OpUnderTest, valid: int) -> None:
    op.check_outputs(arguments([0, 3, 0], [valid, 2, valid], [4, 0, 0]))


@case("EPI-3", counts=["ragged", "gaps"], reach=REACH)
def test_the_index_to_sample_from(op: OpUnderTest, seed: int, counts: str) -> None:
    op.check_outputs(random_arguments(np.random.default_rng(seed), COUNTS[counts]))


@case("EPI-3", check="longer queries")
def test_the_index_counts_from_the_end_of_the_query(op: OpUnderTest, seed: int) -> None:
    """Requests with drafts and with more query tokens than these and one."""
    rng = np.random.default_rng(seed)
    counts = np.array(COUNTS["gaps"])
    op.check_outputs(arguments(counts, rng.integers(1, counts + 2), rng.integers(1, 9, len(counts))))


@case("EPI-3", check="long queries", reach="chunks of long prompts beside decodes")
def test_the_index_after_long_queries(op: OpUnderTest) -> None:
    """Few requests with more query tokens together than 2^15, 2^16 and 2^17."""
    for tokens in (2**15, 2**16, 2**17):
        op.check_outputs(arguments([0, 3, 0, 2, 1], [1, 2, 0, 3, 1], [tokens // 2, 0, tokens // 2 + 7, 0, 0]))


@case("EPI-4", first=[0, 1, 4], reach=REACH)
def test_drafts_are_counted_from_the_request_before(op: OpUnderTest, first: int) -> None:
    op.check_outputs(arguments([first, 2, 2], [1, 1, 3]))


@case("EPI-4", check="sums past 2^16", reach="large batches of long drafts")
def test_sums_of_many_drafts(op: OpUnderTest) -> None:
    """1,100 requests of up to 128 drafts, so that the sums pass 2^15, 2^16 and 2^17 within a request."""
    counts = np.where(np.arange(1100) % 7 == 0, 0, 128)
    op.check_outputs(arguments(counts, np.minimum(np.arange(1100) % 130, counts + 1)))


@case("EPI-5", requests=["none", "fewer than rows"])
def test_rows_past_the_batch_are_left_alone(op: OpUnderTest, seed: int, requests: str) -> None:
    values = random_arguments(np.random.default_rng(seed), COUNTS["ragged"])
    values["num_reqs"] = 0 if requests == "none" else 2
    rows = {"token_indices_to_sample_ptr": (4,), "num_rejected_tokens_gpu_ptr": (4,)}
    op.check_outputs(values, shapes=rows)


@case("EPI-5", requests="fewer than rows", check="many steps")
def test_rows_past_the_batch_are_left_alone_in_every_step(op: OpUnderTest, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = (len(COUNTS["ragged"]),)
    shapes = {"token_indices_to_sample_ptr": rows, "num_rejected_tokens_gpu_ptr": rows}
    for requests in rng.integers(0, *rows, 24).tolist():
        op.check_outputs(random_arguments(rng, COUNTS["ragged"]) | {"num_reqs": requests}, shapes=shapes)


@case("EPI-6", ids=["int32", "int64", "mixed", "swapped"], reach=lambda p: REACH if p["ids"] == "int32" else None)
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    op.check_outputs(random_arguments(np.random.default_rng(seed), COUNTS["gaps"]), dtypes=integers(CONTRACT, ids))


@case("EPI-7", layout="gapped")
def test_strides(op: OpUnderTest, seed: int) -> None:
    """A kernel that takes a lane per request may need thousands of them for a second program."""
    layouts = dict.fromkeys((t.name for t in CONTRACT.tensors), "gapped")
    for counts in (COUNTS["gaps"], (0, 3, 1, 2) * 2100):
        op.check_outputs(random_arguments(np.random.default_rng(seed), counts), layouts=layouts)


@case("EPI-1", mode="generated", reach=REACH)
def test_generated(op: OpUnderTest, seed: int) -> None:
    @explore(structures(CONTRACT, layouts=False, some_draft=True), 150, seed)
    def check(drawn: DrawnCall) -> None:
        op.check_outputs(random_arguments(np.random.default_rng(drawn.seed), drawn.counts))


@case("EPI-3", relation="split", reach=REACH)
def test_requests_do_not_see_each_other(op: OpUnderTest, seed: int) -> None:
    """A request alone rejects as many tokens as in the batch."""
    counts = np.array(COUNTS["gaps"])
    valid = np.random.default_rng(seed).integers(1, counts + 2)
    whole = op.call_written(arguments(counts, valid))["num_rejected_tokens_gpu_ptr"]
    alone = [
        op.call(arguments([c], [v]))[1]["num_rejected_tokens_gpu_ptr"][0] for c, v in zip(counts, valid, strict=True)
    ]
    assert_same("each request alone", whole, np.array(alone))

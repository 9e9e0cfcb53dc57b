"""Requirements of flatten_sampled (contract FLS)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.judge import OpUnderTest
from verispec.suites.sampler._request_state import COUNTS, drafted_reach, layouts, widths
from verispec.suites.sampler._sampling import flatten_arguments

REACH = "log-probabilities of sampled tokens"


def flatten_reach(params: Mapping[str, Any]) -> str | None:
    return REACH if drafted_reach(params) else None


def check(op: OpUnderTest, seed: int, counts: str, sampled: str = "random", columns: int = 0, **options: Any) -> None:
    rng = np.random.default_rng(seed)
    rows = np.asarray(COUNTS[counts], dtype=np.int64) + 1
    every_second = rows * (np.arange(len(rows)) % 2)
    random = rng.integers(1, rows + 1)
    num_sampled = {"random": random, "all": rows, "none": rows * 0, "every second request": every_second}[sampled]
    values, shapes = flatten_arguments(rng, rows, num_sampled, columns)
    op.check_outputs(values, shapes=shapes, **options)


@case("FLS-1", counts=list(COUNTS), sampled=["random", "all"], reach=flatten_reach)
def test_tokens_in_the_order_of_the_rows(op: OpUnderTest, seed: int, counts: str, sampled: str) -> None:
    check(op, seed, counts, sampled)


@case("FLS-1", check="rows of hundreds of steps")
def test_more_steps_than_a_tile_holds(op: OpUnderTest, seed: int) -> None:
    rows = np.array([2, 257, 1, 700])
    values, shapes = flatten_arguments(np.random.default_rng(seed), rows, rows)
    op.check_outputs(values, shapes=shapes)


@case("FLS-2", counts=list(COUNTS))
def test_nothing_sampled_writes_nothing(op: OpUnderTest, seed: int, counts: str) -> None:
    check(op, seed, counts, "none")


@case("FLS-2", counts=["ragged", "wide"], sampled="every second request")
def test_requests_without_tokens_between_others(op: OpUnderTest, seed: int, counts: str) -> None:
    """The first request has no token, the second one all of its rows, and so on."""
    check(op, seed, counts, "every second request")


@case("FLS-3", check="more columns than rows", reach=REACH)
def test_wider_rows(op: OpUnderTest, seed: int) -> None:
    check(op, seed, "ragged", "all", columns=11)


@case("FLS-3", check="a count past the request's rows")
def test_a_count_that_is_too_large(op: OpUnderTest, seed: int) -> None:
    values = {
        "sampled": np.arange(12).reshape(2, 6),
        "num_sampled": np.array([6, 9]),
        "cu_num_logits": np.array([0, 2, 5]),
    }
    op.check_outputs(values, shapes={"flat_sampled": (8,)})


@case("FLS-4", layout=["gapped", "padded", "transposed"])
def test_strides(op: OpUnderTest, seed: int, layout: str) -> None:
    check(op, seed, "gaps", layouts=layouts(op, layout))


@case("FLS-5", ids=["int32", "int64"])
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    check(op, seed, "gaps", dtypes=widths(op, ids))

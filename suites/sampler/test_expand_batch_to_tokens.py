"""Requirements of expand_batch_to_tokens (contract EXP)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.axes import SERIES, around
from verispec.cases.batches import COUNTS, Array
from verispec.cases.strategies import DrawnCall, explore, structures
from verispec.engines import Engine
from verispec.judge import OpUnderTest, assert_same
from verispec.reference import contracts
from verispec.suites.sampler._sampling import expand_arguments
from verispec.suites.sampler.test_every_op import PROGRAMS, WORK, is_slow

CONTRACT = contracts.load("expand_batch_to_tokens")
DTYPES = ["float32", "int32", "int64", "bool"]


def reach(params: Mapping[str, Any]) -> str | None:
    """Return the callers of a dtype: temperatures and top-p are float32, top-k is int32, and nothing else is passed.

    As for the ops of `_rejection`, a call without any draft token has none.
    """
    if params.get("dtype", "float32") not in ("float32", "int32") or params.get("cu", "int32") != "int32":
        return None
    if params.get("counts") in ("none", "empty") or params.get("relation") == "split":
        return None
    return "every batch with a sampled request: its temperature and top-p (float32) and its top-k (int32) are expanded"


def values(rng: np.random.Generator, dtype: str, b: int) -> Array:
    """Return values that a conversion would change: fractions for floats, integers that no half type holds.

    No integer exceeds 2^24: the widest that callers pass is a top-k, and no vocabulary is that large.
    """
    if dtype == "float32":
        return rng.choice([0.0, 0.25, 0.7, 1.0, 1.5, 1e-30], size=b)
    if dtype == "bool":
        return rng.random(b) < 0.5
    return rng.integers(2**20, 2**24, size=b, dtype=np.int64)


def check(op: OpUnderTest, dtype: str, input_: Any, counts: Any, replace: Any = (0, 0), **options: Any) -> None:
    """Expand `input_` over `counts` with `dtype` in and out, and compare with the oracle."""
    arguments, shapes = expand_arguments(input_, counts, replace, options.pop("spare", 0), options.pop("bound", 0))
    dtypes = {"input_ptr": dtype, "output_ptr": dtype, **options.pop("dtypes", {})}
    op.check_outputs(arguments, dtypes=dtypes, shapes=shapes, **options)


@case("EXP-1", counts=["one", "even", "ragged", "wide", "longest"], dtype=DTYPES, reach=reach)
def test_each_token_receives_the_value_of_its_request(op: OpUnderTest, seed: int, counts: str, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    check(op, dtype, values(rng, dtype, len(COUNTS[counts])), COUNTS[counts])


@case("EXP-1", check="large batches", dtype=DTYPES)
def test_many_and_long_requests(op: OpUnderTest, engine: Engine, seed: int, dtype: str) -> None:
    """More requests than threads share out, and thousands of tokens of one; an engine may take one dtype alone.

    Every third value is the one that is replaced.
    """
    rng = np.random.default_rng(seed)
    many = PROGRAMS if is_slow(engine) else 2 * WORK
    batches = [rng.integers(0, 4, many), *(np.array([0, n, 1]) for n in rng.choice(around(SERIES, 16_400)[-15:], 3))]
    for counts in batches:
        input_ = values(rng, dtype, len(counts))
        input_[::3] = 0
        check(op, dtype, input_, counts, (0, 1))


@case("EXP-1", check="longest request as bound", dtype=["float32", "int32"])
def test_bounds_that_are_no_powers_of_two(op: OpUnderTest, seed: int, dtype: str) -> None:
    """A kernel in blocks of them needs one more than fits; vLLM's callers pass a power of two."""
    rng = np.random.default_rng(seed)
    for longest in (3, 129, 1000, 1025, 2600):
        check(op, dtype, values(rng, dtype, 4), [1, longest, 0, 2], bound=longest)


@case("EXP-2", dtype=DTYPES, cu=["int32", "int64"], reach=reach)
def test_the_buffer_itself_is_written(op: OpUnderTest, dtype: str, cu: str) -> None:
    input_ = [True, False, True] if dtype == "bool" else [3, 5, 7]
    check(op, dtype, input_, [2, 1, 2], dtypes={"cu_num_tokens_ptr": cu})


@case("EXP-3", dtype=["float32"], reach=reach)
def test_a_greedy_temperature_becomes_one(op: OpUnderTest, dtype: str) -> None:
    check(op, dtype, [0.7, 0.0, 1.5, 0.0], [2, 3, 0, 1], (0, 1))


@case("EXP-3", dtype=["int32", "int64"], check="only equal values")
def test_only_equal_values_are_replaced(op: OpUnderTest, dtype: str) -> None:
    for replace in ((1, 9), (0, 9), (-1, 0)):
        check(op, dtype, [-1, 0, 1, 5], [1, 2, 1, 3], replace)


@case("EXP-3", dtype=["int32", "int64"], check="wide integers")
def test_wide_integers_are_told_apart(op: OpUnderTest, dtype: str) -> None:
    """Neighbours that float32 rounds to the same number, or float64, as compared value and as replacement."""
    first = 2**24 if dtype == "int32" else 2**53
    check(op, dtype, [first, first + 1, 5], [1, 2, 1], (first, first + 6))


@case("EXP-3", dtype=["bool"])
def test_replacing_a_flag(op: OpUnderTest, dtype: str) -> None:
    check(op, dtype, [True, False], [2, 2], (False, True))


@case("EXP-3", value=["nan", "negative zero", "just above"], dtype="float32")
def test_values_near_the_replaced_one(op: OpUnderTest, value: str) -> None:
    """-0.0 equals 0 and is replaced; the smallest normal number and NaN are not, and NaN does not equal itself.

    float32 rounds 0.1 and 0.7: the number that equals them in it is replaced, and the one above it is not.
    """
    number = {"nan": np.nan, "negative zero": -0.0, "just above": 2.0**-126}[value]
    check(op, "float32", [0.7, number], [2, 2], (0, 1))
    if value == "nan":
        check(op, "float32", [0.7, number], [2, 2], (np.nan, 1))
    for fraction in (np.float32(0.1), np.float32(0.7)) if value == "just above" else ():
        above = np.nextafter(fraction, np.float32(1))
        check(op, "float32", np.array([0.5, fraction, above]), [1, 2, 1], (round(float(fraction), 2), 9))


@case("EXP-4", dtype=["float32", "int32"], reach=reach)
def test_values_keep_their_dtype(op: OpUnderTest, dtype: str) -> None:
    check(op, dtype, [0.7, 1e-30, 1e30] if dtype == "float32" else [1, 151_935, 2**24 - 1], [1, 2, 3])


@case("EXP-4", check="wide", dtype=["int32", "int64"])
def test_wide_integers_stay_exact(op: OpUnderTest, dtype: str) -> None:
    check(op, dtype, [2**24 + 1, 2**31 - 1] if dtype == "int32" else [2**53 + 1, -(2**62)], [1, 2])


@case("EXP-5", counts=["gaps", "none", "empty"], dtype=DTYPES, reach=reach)
def test_requests_without_drafts_write_nothing(op: OpUnderTest, seed: int, counts: str, dtype: str) -> None:
    check(op, dtype, values(np.random.default_rng(seed), dtype, len(COUNTS[counts])), COUNTS[counts])


@case("EXP-6", layout=["gapped", "transposed"], dtype=DTYPES)
def test_strides(op: OpUnderTest, seed: int, layout: str, dtype: str) -> None:
    input_ = values(np.random.default_rng(seed), dtype, 7)
    check(op, dtype, input_, COUNTS["gaps"], layouts=dict.fromkeys((t.name for t in CONTRACT.tensors), layout))


@case("EXP-7", dtype=DTYPES)
def test_past_the_last_count_nothing_is_written(op: OpUnderTest, seed: int, dtype: str) -> None:
    check(op, dtype, values(np.random.default_rng(seed), dtype, 4), COUNTS["ragged"], spare=5)


@case("EXP-1", mode="generated", dtype=DTYPES, reach=reach)
def test_generated(op: OpUnderTest, seed: int, dtype: str) -> None:
    @explore(structures(CONTRACT, layouts=False, some_draft=True), 100, seed)
    def check_drawn(drawn: DrawnCall) -> None:
        rng = np.random.default_rng(drawn.seed)
        check(op, dtype, values(rng, dtype, len(drawn.counts)), drawn.counts)


@case("EXP-1", relation="split", dtype=["float32", "int32"], reach=reach)
def test_requests_do_not_see_each_other(op: OpUnderTest, seed: int, dtype: str) -> None:
    """Every second value is the one that is replaced, also where its request is alone."""
    rng = np.random.default_rng(seed)
    input_ = values(rng, dtype, 7)
    input_[1::2] = 0
    whole = expand(op, dtype, input_, COUNTS["gaps"])
    parts = [expand(op, dtype, input_[b : b + 1], COUNTS["gaps"][b : b + 1]) for b in range(7)]
    assert_same("the requests one by one", whole, np.concatenate(parts))


def expand(op: OpUnderTest, dtype: str, input_: Array, counts: Any) -> Array:
    arguments, _ = expand_arguments(input_, counts, (0, 1))
    arguments["output_ptr"] = np.zeros(int(np.sum(counts)))  # elements that are not written are equal in both calls
    return op.call_written(arguments, dtypes={"input_ptr": dtype, "output_ptr": dtype})["output_ptr"]

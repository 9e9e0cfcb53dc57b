"""Requirements of synthetic_rejection (contract SYN)."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.request_state import Array, RequestBatch, random_requests
from verispec.judge import OpUnderTest, assert_same
from verispec.reference.oracle.philox import Draw, uniform, word
from verispec.suites.sampler._request_state import COUNTS, batch, drafted_reach, layouts, widths
from verispec.suites.sampler._sampling import synthetic_arguments

REACH = "rejection_sample_method=synthetic"


def check(op: OpUnderTest, requests: RequestBatch, rates: Any, **options: Any) -> dict[str, Array]:
    values, shapes = synthetic_arguments(requests, op.contract, rates, options.pop("columns", 0))
    return op.check_outputs(values, shapes=shapes, **options)


@case("SYN-1", counts=list(COUNTS), rate=["0.3", "0.8"], reach=drafted_reach)
def test_accepted_below_the_rate(op: OpUnderTest, seed: int, counts: str, rate: str) -> None:
    check(op, batch(seed, counts), np.full(32, float(rate)))


@case("SYN-1", rate=["zero", "one", "nan"], reach=lambda p: REACH if p["rate"] != "nan" else None)
def test_rates_at_the_ends(op: OpUnderTest, seed: int, rate: str) -> None:
    value = {"zero": 0.0, "one": 1.0, "nan": np.nan}[rate]
    requests = batch(seed, "ragged")
    got = check(op, requests, np.full(5, value))["num_sampled"]
    drafts = [requests.drafts(b) if rate == "one" else 0 for b in range(4)]
    assert_same("all or none are accepted", np.add(drafts, 1), got)


EQUAL_SEED = 0x0123456789ABCDEF


@case("SYN-1", rate=["equal", "next"], reach=REACH)
def test_a_rate_that_equals_its_number(op: OpUnderTest, seed: int, rate: str) -> None:
    """Numbers below 2^-9 may fit into float32: rates equal to one reject, the next larger ones accept."""
    requests = batch(seed, "ragged")
    requests.seed[:] = EQUAL_SEED
    first = int(np.argmax(requests.cu_num_logits[1:] - requests.cu_num_logits[:-1] > 3))
    start = int(requests.cu_num_logits[first])
    rates = np.ones(5, dtype=np.float32)
    for step in (0, 2):
        requests.pos[start + step] = position = exact_position(step)
        number = np.float32(uniform(EQUAL_SEED, position, step, Draw.ACCEPT))
        rates[step] = number if rate == "equal" else np.nextafter(number, np.float32(1))
        check(op, requests, rates)
        rates[step] = 1.0


@cache
def exact_position(step: int) -> int:
    """Return a position at which the acceptance number of the step is one of float32."""
    return next(pos for pos in range(100_000) if word(EQUAL_SEED, pos, step, Draw.ACCEPT) < 2**23)


@case("SYN-1", check="numbers of 300 drafts")
def test_every_step_of_a_long_request_has_its_own_number(op: OpUnderTest, seed: int) -> None:
    """Each rate is the next number of float32 above the sample of its step, until one is 0."""
    requests = random_requests(np.random.default_rng(seed), (2, 300, 1), 11, draft=False, spare=0)
    key, first = int(requests.seed[requests.idx_mapping[1]]), requests.row(1, 0)
    numbers = [uniform(key, int(requests.pos[first + step]), step, Draw.ACCEPT) for step in range(300)]
    rates = np.nextafter(np.asarray(numbers, np.float32), np.float32(2))
    rates[290] = 0.0
    got = check(op, requests, rates)["num_sampled"]
    assert_same("290 drafts and one token", 291, int(got[1]))


@case("SYN-2", counts=["ragged", "wide"], reach=REACH)
def test_each_step_has_its_own_rate(op: OpUnderTest, seed: int, counts: str) -> None:
    check(op, batch(seed, counts), np.linspace(0.95, 0.2, 5))


@case("SYN-3", at=[0, 1, 2], reach=REACH)
def test_the_targets_token_at_the_rejection(op: OpUnderTest, seed: int, at: int) -> None:
    """A rate of zero rejects, then padding does, in every request that has a draft at the step."""
    rates = np.ones(5)
    rates[at] = 0.0
    requests = batch(seed, "ragged")
    check(op, requests, rates)
    starts, ends = requests.cu_num_logits[:-1], requests.cu_num_logits[1:]
    requests.draft_sampled[(starts + at + 1)[starts + at + 1 < ends]] = -1
    check(op, requests, np.ones(5))


@case("SYN-4", counts=["ragged", "gaps", "none"], reach=drafted_reach)
def test_the_bonus_token(op: OpUnderTest, seed: int, counts: str) -> None:
    check(op, batch(seed, counts), np.ones(5))


@case("SYN-5", check="a longer row keeps what was there", reach=REACH)
def test_later_positions_are_not_written(op: OpUnderTest, seed: int) -> None:
    """Most of the longest chains end long before their last draft."""
    check(op, batch(seed, "ragged"), np.full(5, 0.5), columns=9)
    check(op, batch(seed, "longest"), np.full(32, 0.5), columns=40)


@case("SYN-6", token=[-1, -9], reach=lambda p: "the scheduler pads drafts with -1" if p["token"] == -1 else None)
def test_padding_tokens(op: OpUnderTest, seed: int, token: int) -> None:
    requests = batch(seed, "ragged")
    requests.draft_sampled[[2, 5, 9]] = token
    check(op, requests, np.ones(5))


@case("SYN-7", rates=[0, 1, 2])
def test_steps_without_a_rate(op: OpUnderTest, seed: int, rates: int) -> None:
    check(op, batch(seed, "ragged"), np.ones(rates))


@case("SYN-8", padding=["first", "last"])
def test_padding_touches_nothing(op: OpUnderTest, seed: int, padding: str) -> None:
    check(op, batch(seed, "ragged", padding=[0] if padding == "first" else [2, 3]), np.full(5, 0.7))


@case("SYN-9", layout=["gapped", "padded", "transposed"])
def test_strides(op: OpUnderTest, seed: int, layout: str) -> None:
    check(op, batch(seed, "gaps"), np.linspace(0.95, 0.55, 5), layouts=layouts(op, layout))


@case("SYN-9", ids=["int32", "int64"])
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    requests = batch(seed, "gaps")
    requests.pos %= 2**31
    check(op, requests, np.full(5, 0.7), dtypes=widths(op, ids))

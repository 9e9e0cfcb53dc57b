"""Requirements of rejection_greedy_sample (contract RGS)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.batches import COUNTS, Batch, random_batch
from verispec.cases.strategies import DrawnCall, explore, structures
from verispec.judge import OpUnderTest
from verispec.reference import contracts
from verispec.suites.sampler._rejection import (
    REACH,
    drafted_reach,
    greedy_arguments,
    integers,
    relation_of_permuting,
    relation_of_splitting,
)

CONTRACT = contracts.load("rejection_greedy_sample")
PLACEHOLDER_REACH = "the scheduler pads drafts with -1, for instance after a prefix-cache hit (vllm#46533)"
SYNTHETIC_REACH = "rejection_sample_method=synthetic is an accepted configuration"
MIXED_REACH = "greedy and sampled requests share batches"


def rng_batch(seed: int, counts: str, greedy: float = 1.0) -> Batch:
    return random_batch(np.random.default_rng(seed), COUNTS[counts], 11, greedy=greedy)


def accept_until(batch: Batch, at: int) -> None:
    """Make every draft token equal the argmax, except at position `at` of each request that is long enough.

    Of every second such request the two ids have the same lower 16 bits.
    """
    batch.argmax[:] = batch.draft_token_ids
    for b in range(batch.requests):
        if batch.counts[b] > at:
            i = batch.at(b).start + at
            batch.argmax[i] = (
                batch.draft_token_ids[i] + 2**16 if b % 2 else (batch.draft_token_ids[i] + 1) % batch.vocab
            )


@case("RGS-1", counts=["one", "even", "ragged", "gaps", "wide", "longest"], reach=REACH)
def test_the_argmax_while_drafts_match(op: OpUnderTest, seed: int, counts: str) -> None:
    op.check_outputs(greedy_arguments(rng_batch(seed, counts)))


@case("RGS-2", at=[0, 1, 4], reach=REACH)
def test_the_first_mismatch_ends_the_request(op: OpUnderTest, seed: int, at: int) -> None:
    batch = rng_batch(seed, "ragged")
    accept_until(batch, at)
    op.check_outputs(greedy_arguments(batch))


@case("RGS-3", counts=["one", "ragged", "gaps", "longest"], reach=REACH)
def test_bonus_after_the_last_accepted_draft(op: OpUnderTest, seed: int, counts: str) -> None:
    batch = rng_batch(seed, counts)
    batch.argmax[:] = batch.draft_token_ids
    op.check_outputs(greedy_arguments(batch))


@case("RGS-3", check="last rejected", reach=REACH)
def test_no_bonus_when_the_last_draft_is_rejected(op: OpUnderTest, seed: int) -> None:
    batch = rng_batch(seed, "ragged")
    batch.argmax[:] = batch.draft_token_ids
    last = batch.cu - 1
    batch.argmax[last] = (batch.argmax[last] + 1) % batch.vocab
    op.check_outputs(greedy_arguments(batch))


@case("RGS-4", counts=["gaps", "none"], reach=drafted_reach)
def test_a_request_without_drafts_receives_its_bonus(op: OpUnderTest, seed: int, counts: str) -> None:
    op.check_outputs(greedy_arguments(rng_batch(seed, counts)))


@case("RGS-5", mode=["standard", "synthetic"], reach=MIXED_REACH)
def test_rows_that_are_not_greedy_keep_what_was_there(op: OpUnderTest, seed: int, mode: str) -> None:
    batch = rng_batch(seed, "gaps")
    batch.is_greedy[:] = [True, False, True, False, True, True, False]
    op.check_outputs(greedy_arguments(batch, rates=np.full(batch.most, 0.5) if mode == "synthetic" else None))


@case("RGS-5", requests=[300], reach=MIXED_REACH)
def test_sampled_rows_of_a_large_batch(op: OpUnderTest, seed: int, requests: int) -> None:
    """Each request has a flag of its own, in any place of a batch, and half of the drafts are the argmax."""
    rng = np.random.default_rng(seed)
    batch = random_batch(rng, rng.integers(0, 4, requests), 5, greedy=0.5)
    op.check_outputs(greedy_arguments(batch))


@case("RGS-6", counts=["one", "gaps"], mode=["standard", "synthetic"], reach="all requests of the batch are greedy")
def test_without_flags_every_request_is_greedy(op: OpUnderTest, seed: int, counts: str, mode: str) -> None:
    batch = rng_batch(seed, counts)
    rates = np.full(batch.most, 0.5) if mode == "synthetic" else None
    uniform = batch.uniform if mode == "synthetic" else None
    op.check_outputs(greedy_arguments(batch, rates=rates, is_greedy_ptr=None, uniform_probs_ptr=uniform))


@case("RGS-7", place=["first row", "first", "middle", "last"], reach=PLACEHOLDER_REACH)
def test_a_padding_token_is_rejected(op: OpUnderTest, seed: int, place: str) -> None:
    """Its argmax is any token, then the first or the last one of the vocabulary: a clamped or a wrapped id is equal."""
    position = {"first row": 0, "first": 4, "middle": 6, "last": 8}[place]
    for argmax in (None, 0, -1):
        batch = rng_batch(seed, "ragged")
        batch.argmax[:] = batch.draft_token_ids
        if argmax is not None:
            batch.argmax[position] = argmax % batch.vocab
        batch.draft_token_ids[position] = -1
        op.check_outputs(greedy_arguments(batch))


@case("RGS-8", counts=["one", "ragged", "gaps", "longest"], reach=SYNTHETIC_REACH)
def test_synthetic_mode_accepts_by_rate(op: OpUnderTest, seed: int, counts: str) -> None:
    batch = rng_batch(seed, counts)
    op.check_outputs(greedy_arguments(batch, rates=np.linspace(0.9, 0.3, batch.most)))


@case("RGS-8", u=["equal", "below", "zero rate", "unit rate"], reach=SYNTHETIC_REACH)
def test_synthetic_mode_is_strict(op: OpUnderTest, seed: int, u: str) -> None:
    value, rate = {"equal": (0.5, 0.5), "below": (0.25, 0.5), "zero rate": (0.0, 0.0), "unit rate": (0.99, 1.0)}[u]
    batch = rng_batch(seed, "ragged")
    batch.uniform[:] = value
    op.check_outputs(greedy_arguments(batch, rates=np.full(batch.most, rate)))


@case("RGS-8", bits=[9, 12, 16, 23], reach=SYNTHETIC_REACH)
def test_no_bit_of_a_rate_is_lost(op: OpUnderTest, seed: int, bits: int) -> None:
    """Rates that need `bits` bits after the point; u is equal, which rejects, or one float32 less, which accepts."""
    batch = rng_batch(seed, "ragged")
    for rate in (np.float32(0.5 + 2.0**-bits), np.float32(1 - 2.0**-bits)):
        for u in (rate, np.nextafter(rate, np.float32(0))):
            batch.uniform[:] = u
            op.check_outputs(greedy_arguments(batch, rates=np.full(batch.most, rate)))


@case("RGS-9", token=[-1, -2], reach=lambda p: PLACEHOLDER_REACH if p["token"] == -1 else None)
def test_a_negative_draft_is_never_emitted_in_synthetic_mode(op: OpUnderTest, seed: int, token: int) -> None:
    batch = rng_batch(seed, "ragged")
    batch.draft_token_ids[[0, 5, 10]] = token
    op.check_outputs(greedy_arguments(batch, rates=np.ones(batch.most)))


@case("RGS-10", above=["2^-30", "2^-50"])
def test_u_is_compared_in_its_own_precision(op: OpUnderTest, seed: int, above: str) -> None:
    """The rate is one half; u is slightly less, which float32 rounds to one half."""
    batch = rng_batch(seed, "even")
    batch.uniform[:] = 0.5 - (2.0**-30 if above == "2^-30" else 2.0**-50)
    op.check_outputs(greedy_arguments(batch, rates=np.full(batch.most, 0.5)))


@case("RGS-11", nan=["u", "rate"])
def test_nan_rejects_in_synthetic_mode(op: OpUnderTest, seed: int, nan: str) -> None:
    batch = rng_batch(seed, "ragged")
    rates = np.ones(batch.most)
    if nan == "u":
        batch.uniform[[0, 5]] = np.nan
    else:
        rates[1:] = np.nan, *np.zeros(batch.most - 2)  # no draft has the rate of another
    op.check_outputs(greedy_arguments(batch, rates=rates))


@case("RGS-12", layout=["gapped", "padded", "transposed"])
def test_strides(op: OpUnderTest, seed: int, layout: str) -> None:
    layouts = dict.fromkeys((t.name for t in CONTRACT.tensors), layout)
    op.check_outputs(greedy_arguments(rng_batch(seed, "gaps")), layouts=layouts)


@case("RGS-13", counts=["none", "empty"])
def test_no_drafts_at_all(op: OpUnderTest, seed: int, counts: str) -> None:
    op.check_outputs(greedy_arguments(rng_batch(seed, counts)))


def width_reach(params: Mapping[str, Any]) -> str | None:
    return REACH if params["ids"] == "production" else None


@case("RGS-14", ids=["production", "int32", "int64", "mixed", "swapped"], reach=width_reach)
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    dtypes = {} if ids == "production" else integers(CONTRACT, ids)
    op.check_outputs(greedy_arguments(rng_batch(seed, "gaps")), dtypes=dtypes)


@case("RGS-1", mode="generated", rates=["standard", "synthetic"], reach=REACH)
def test_generated_batches(op: OpUnderTest, seed: int, rates: str) -> None:
    @explore(structures(CONTRACT, layouts=False, some_draft=True), 150, seed)
    def check(drawn: DrawnCall) -> None:
        rng = np.random.default_rng(drawn.seed)
        batch = random_batch(rng, drawn.counts, drawn.vocab, greedy=0.7)
        op.check_outputs(greedy_arguments(batch, rates=rng.random(batch.most) if rates == "synthetic" else None))


@case("RGS-12", mode="generated", rates=["standard", "synthetic"])
def test_generated_dtypes_and_layouts(op: OpUnderTest, seed: int, rates: str) -> None:
    @explore(structures(CONTRACT), 150, seed)
    def check(drawn: DrawnCall) -> None:
        rng = np.random.default_rng(drawn.seed)
        batch = random_batch(rng, drawn.counts, drawn.vocab, greedy=0.7)
        values = greedy_arguments(batch, rates=rng.random(batch.most) if rates == "synthetic" else None)
        op.check_outputs(values, dtypes=drawn.dtypes, layouts=drawn.layouts)


@case("RGS-1", relation=["permuted", "split"], reach=drafted_reach)
def test_requests_do_not_see_each_other(op: OpUnderTest, seed: int, relation: str) -> None:
    batch = rng_batch(seed, "gaps", greedy=0.7)
    arguments = greedy_arguments(batch, output_token_ids_ptr=np.full((batch.requests, batch.most + 1), -1))
    if relation == "permuted":
        relation_of_permuting(op, arguments, batch.counts, np.random.default_rng(seed))
    else:
        relation_of_splitting(op, arguments, batch.counts)

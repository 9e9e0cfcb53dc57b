"""Requirements of rejection_random_sample (contract RRS)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.batches import COUNTS, Batch, random_batch
from verispec.cases.strategies import DrawnCall, explore, structures
from verispec.engines import Engine
from verispec.judge import OpUnderTest, assert_same, sparse_zeros
from verispec.reference import contracts
from verispec.suites.sampler._rejection import (
    REACH,
    drafted_reach,
    integers,
    random_arguments,
    relation_of_permuting,
    relation_of_splitting,
)
from verispec.suites.sampler.test_every_op import PROGRAMS, WORK, is_slow

CONTRACT = contracts.load("rejection_random_sample")
DRAFT = ["present", "absent"]
PLACEHOLDER_REACH = (
    "the scheduler pads drafts of a sampled request with -1, after a prefix-cache hit or where a grammar refuses them "
    "(vllm#46533)"
)
SYNTHETIC_REACH = "rejection_sample_method=synthetic is an accepted configuration"


def rng_batch(seed: int, counts: str, draft: str, vocab: int = 11, **options: Any) -> Batch:
    return random_batch(np.random.default_rng(seed), COUNTS[counts], vocab, draft=draft == "present", **options)


def one(p: Any, q: Any, u: float, token: int = 0) -> dict[str, Any]:
    """Return one request with one draft token.

    Args:
        p: target row.
        q: draft row, None for no draft probabilities.
        u: uniform sample.
        token: draft token.
    """
    vocab = len(p)
    return {
        "cu_num_draft_tokens_ptr": [1],
        "draft_token_ids_ptr": [token],
        "draft_probs_ptr": None if q is None else [q],
        "target_probs_ptr": [p],
        "bonus_token_ids_ptr": [[2]],
        "recovered_token_ids_ptr": [1],
        "uniform_probs_ptr": [u],
        "is_greedy_ptr": [False],
        "max_spec_len": 1,
        "vocab_size": vocab,
        "synthetic_conditional_rates_ptr": None,
        "NO_DRAFT_PROBS": q is None,
        "SYNTHETIC_MODE": False,
    }


@case("RRS-1", counts=["one", "even", "ragged", "gaps", "wide", "longest"], reach=REACH)
def test_accepts_while_the_ratio_reaches_u(op: OpUnderTest, seed: int, counts: str) -> None:
    op.check_outputs(random_arguments(rng_batch(seed, counts, "present")))


@case("RRS-1", ratio=["equal", "above", "below"], reach=REACH)
def test_equality_accepts(op: OpUnderTest, ratio: str) -> None:
    """p = 1/4 and q = 1/2 divide without rounding in any format."""
    u = {"equal": 0.5, "above": 0.5 - 2**-10, "below": 0.5 + 2**-10}[ratio]
    op.check_outputs(one([0.25, 0.5, 0.25], [0.5, 0.25, 0.25], u))


@case("RRS-1", check="nearest floats")
def test_the_floats_next_to_the_ratio(op: OpUnderTest, seed: int) -> None:
    """u is the last float32 up to p/q, or the next one: a product with u, or with 1/q, decides some of them otherwise.

    The exact quotient and the one that is rounded to float32 are on one side of every u. Some p are down to 2^-60, so
    that a floor below u shows.
    """
    rng = np.random.default_rng(seed)
    p, q = (rng.uniform(0.05, 0.5, size=400).astype(np.float32) for _ in range(2))
    p, q = np.minimum(p, q) * np.float32(0.9), np.maximum(p, q)
    p[1::2] *= np.float32(2.0) ** -rng.integers(1, 60, size=200)
    ratio, rounded = p.astype(np.float64) / q, p / q
    low = np.where(rounded <= ratio, rounded, np.nextafter(rounded, np.float32(0)))
    high = np.nextafter(rounded, np.float32(1))
    single = one([0.25, 0.5, 0.25], [0.5, 0.25, 0.25], 0.5)
    rows = {name: np.repeat(np.array(v), len(p), axis=0) for name, v in single.items() if isinstance(v, list)}
    rows["cu_num_draft_tokens_ptr"] = np.arange(1, len(p) + 1)
    rows["target_probs_ptr"][:, 0], rows["draft_probs_ptr"][:, 0] = p, q
    for u in (low, high):
        op.check_outputs({**single, **rows, "uniform_probs_ptr": u.astype(np.float64)})


@case("RRS-1", ratio="zero", draft=DRAFT)
def test_equality_accepts_at_zero(op: OpUnderTest, draft: str) -> None:
    """A draft whose p is 0 and u as well, without draft probabilities (RRS-2) too."""
    op.check_outputs(one([0.0, 0.5, 0.5], [0.5, 0.25, 0.25] if draft == "present" else None, 0.0))


@case("RRS-2", ratio=["equal", "above", "below"], reach=REACH)
def test_equality_accepts_without_draft_probabilities(op: OpUnderTest, ratio: str) -> None:
    """q is 1, so that p itself is compared with u."""
    u = {"equal": 0.25, "above": 0.25 - 2**-10, "below": 0.25 + 2**-10}[ratio]
    op.check_outputs(one([0.25, 0.5, 0.25], None, u))


@case("RRS-1", bits=[4, 8, 16, 23], draft=DRAFT, reach=REACH)
def test_no_bit_of_u_is_lost(op: OpUnderTest, bits: int, draft: str) -> None:
    """u is 2^-(bits + 1) above p/q; a number of `bits` bits would be equal and accept."""
    q = [0.5, 0.25, 0.25] if draft == "present" else None
    p = [0.25, 0.5, 0.25] if draft == "present" else [0.5, 0.25, 0.25]
    op.check_outputs(one(p, q, 0.5 + 2.0 ** -(bits + 1)))


@case(
    "RRS-1",
    requests=[63, 64, 65, 129, 1025, 65_537],
    draft=DRAFT,
    reach=lambda p: "batches of any size" if p["requests"] <= 1025 else None,
)
def test_any_number_of_requests(op: OpUnderTest, seed: int, requests: int, draft: str) -> None:
    """Sizes around a warp's, beyond every block of requests, and more than a grid of 16 bits."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 7 if requests < 2000 else 2, requests)
    op.check_outputs(random_arguments(random_batch(rng, counts, 5, draft=draft == "present")))


@case("RRS-1", check="ids that share 16 bits", draft=DRAFT, reach=REACH)
def test_the_row_at_ids_past_65_536(op: OpUnderTest, seed: int, draft: str) -> None:
    """Half of the drafts pass. At the id without its higher bits p and q say the opposite."""
    rng = np.random.default_rng(seed)
    batch = random_batch(rng, rng.integers(0, 5, 12), 3, draft=draft == "present")
    rows = np.arange(batch.tokens)
    ids = rng.permutation(400)[: batch.tokens] + 2**16
    passes = rng.random(batch.tokens) < 0.7
    target = np.zeros((batch.tokens, 66_000))
    target[rows, ids], target[rows, ids - 2**16] = np.where(passes, 0.5, 0.125), np.where(passes, 0.125, 0.5)
    quotient = None
    if batch.draft_probs is not None:
        quotient = np.full((batch.tokens, 66_000), 0.5)
        target[rows, ids] = 0.25
        quotient[rows, ids], quotient[rows, ids - 2**16] = np.where(passes, 0.25, 1.0), np.where(passes, 1.0, 0.25)
    changed = {"draft_token_ids_ptr": ids, "target_probs_ptr": target, "draft_probs_ptr": quotient}
    uniform = rng.uniform(0.3, 0.45, batch.tokens)
    op.check_outputs(random_arguments(batch, uniform_probs_ptr=uniform, vocab_size=66_000, **changed))


@case("RRS-1", check="vocabulary", vocab=[3, 127, 8193, 151936], reach=REACH)
def test_any_vocabulary(op: OpUnderTest, seed: int, vocab: int) -> None:
    op.check_outputs(random_arguments(rng_batch(seed, "ragged", "present", vocab)))


@case("RRS-2", counts=["one", "ragged", "gaps", "longest"], reach=REACH)
def test_without_draft_probabilities(op: OpUnderTest, seed: int, counts: str) -> None:
    op.check_outputs(random_arguments(rng_batch(seed, counts, "absent")))


@case("RRS-3", draft=DRAFT, at=[0, 1, 4], reach=REACH)
def test_recovered_token_ends_the_request(op: OpUnderTest, seed: int, draft: str, at: int) -> None:
    """Certain acceptance before position `at`, certain rejection there, certain acceptance after it."""
    batch = random_batch(np.random.default_rng(seed), (2, 5, 1), 11, draft=draft == "present")
    force(batch, np.arange(batch.tokens) != 2 + at)
    op.check_outputs(random_arguments(batch))


@case("RRS-3", draft=DRAFT, check="recovered is the draft")
def test_a_recovered_token_that_is_the_draft(op: OpUnderTest, seed: int, draft: str) -> None:
    """A rejection ends the request even if the draft and the recovered token are one."""
    batch = random_batch(np.random.default_rng(seed), (2, 5, 1), 11, draft=draft == "present")
    force(batch, np.arange(batch.tokens) != 3)
    op.check_outputs({**random_arguments(batch), "recovered_token_ids_ptr": batch.draft_token_ids})


def force(batch: Batch, accepted: Any) -> None:
    """Make the acceptance or rejection of each draft token certain, whatever the rounding."""
    rows = np.arange(batch.tokens)
    batch.target_probs[rows, batch.draft_token_ids] = np.where(accepted, 0.75, 0.0)
    batch.uniform[:] = 0.5
    if batch.draft_probs is not None:
        batch.draft_probs[rows, batch.draft_token_ids] = 0.5


@case("RRS-4", draft=DRAFT, counts=["one", "ragged", "gaps", "longest"], reach=REACH)
def test_bonus_after_the_last_accepted_draft(op: OpUnderTest, seed: int, draft: str, counts: str) -> None:
    batch = rng_batch(seed, counts, draft)
    force(batch, True)
    op.check_outputs(random_arguments(batch))


@case("RRS-4", check="last rejected", draft=DRAFT, reach=REACH)
def test_no_bonus_when_the_last_draft_is_rejected(op: OpUnderTest, seed: int, draft: str) -> None:
    batch = rng_batch(seed, "ragged", draft)
    last = np.isin(np.arange(batch.tokens), batch.cu - 1)
    force(batch, ~last)
    op.check_outputs(random_arguments(batch))


@case("RRS-5", counts=["gaps", "none"], reach=drafted_reach)
def test_a_request_without_drafts_receives_its_bonus(op: OpUnderTest, seed: int, counts: str) -> None:
    op.check_outputs(random_arguments(rng_batch(seed, counts, "present")))


@case("RRS-6", draft=DRAFT, reach="greedy and sampled requests share batches")
def test_greedy_rows_keep_what_was_there(op: OpUnderTest, seed: int, draft: str) -> None:
    batch = rng_batch(seed, "gaps", draft)
    batch.is_greedy[:] = [False, True, False, True, False, True, True]
    op.check_outputs(random_arguments(batch))


@case("RRS-6", requests=[300], draft=DRAFT, reach="greedy and sampled requests share batches")
def test_greedy_rows_of_a_large_batch(op: OpUnderTest, seed: int, requests: int, draft: str) -> None:
    """Each request has a flag of its own, in any place of a batch."""
    rng = np.random.default_rng(seed)
    batch = random_batch(rng, rng.integers(0, 4, requests), 5, draft=draft == "present", greedy=0.5)
    op.check_outputs(random_arguments(batch))


@case("RRS-7", draft=DRAFT, place=["first", "middle", "last", "first row"], reach=PLACEHOLDER_REACH)
def test_a_padding_token_is_rejected(op: OpUnderTest, seed: int, draft: str, place: str) -> None:
    """All values one element before a row would accept: certain p, tiny u."""
    batch = rng_batch(seed, "ragged", draft)
    force(batch, True)
    position = {"first row": 0, "first": 4, "middle": 6, "last": 8}[place]
    batch.draft_token_ids[position] = -1
    batch.target_probs[:, -1] = 1.0
    batch.uniform[position] = 1e-9
    op.check_outputs(random_arguments(batch))


@case("RRS-7", token=[-2, -(2**31)], draft=DRAFT, check="any negative id")
def test_any_negative_id_is_rejected(op: OpUnderTest, seed: int, draft: str, token: int) -> None:
    """An id of -2 stays inside the buffer, so that using it as an index reads instead of crashing."""
    batch = rng_batch(seed, "ragged", draft)
    batch.draft_token_ids[6] = token
    op.check_outputs(random_arguments(batch))


@case("RRS-7", mode="synthetic", reach=PLACEHOLDER_REACH)
def test_a_padding_token_is_rejected_in_synthetic_mode(op: OpUnderTest, seed: int) -> None:
    batch = rng_batch(seed, "ragged", "present")
    batch.draft_token_ids[[0, 5, 10]] = -1
    op.check_outputs(random_arguments(batch, rates=np.ones(batch.most)))


@case("RRS-8", draft=DRAFT, beyond=[0, 1])
def test_an_id_beyond_the_vocabulary_is_rejected(op: OpUnderTest, seed: int, draft: str, beyond: int) -> None:
    """The element at `vocab_size` of a row is the first of the next row, which would accept."""
    batch = rng_batch(seed, "ragged", draft)
    force(batch, True)
    batch.draft_token_ids[6] = batch.vocab + beyond
    batch.target_probs[:, : 1 + beyond] = 1.0
    op.check_outputs(random_arguments(batch))


@case("RRS-9", u=[0.0, 0.25])
def test_a_draft_of_probability_zero_is_rejected(op: OpUnderTest, u: float) -> None:
    op.check_outputs(one([0.5, 0.5, 0.0], [0.0, 0.5, 0.5], u))


@case("RRS-9", u=[0.0], check="both zero")
def test_zero_over_zero_is_rejected(op: OpUnderTest, u: float) -> None:
    op.check_outputs(one([0.0, 0.5, 0.5], [0.0, 0.5, 0.5], u))


@case("RRS-10", nan=["p", "q", "u"])
def test_nan_rejects(op: OpUnderTest, nan: str) -> None:
    value = float("nan")
    p, q, u = (value if nan == name else 0.5 for name in "pqu")
    op.check_outputs(one([p, 0.5, 0.0], [q, 0.25, 0.25], u))


def behind_sure_drafts(single: dict[str, Any], sure: int) -> dict[str, Any]:
    """Return the request of `one` with `sure` drafts before its own, which pass for certain; rates of 1 too."""
    certain = {**one([1.0, 0.0, 0.0], [0.5, 0.25, 0.25], 0.25), "synthetic_conditional_rates_ptr": [1.0]}
    per_draft = [name for name, value in single.items() if isinstance(value, list) and name not in PER_REQUEST]
    rows = {name: certain[name] * sure + single[name] for name in per_draft}
    return {**single, **rows, "cu_num_draft_tokens_ptr": [sure + 1], "max_spec_len": sure + 1}


PER_REQUEST = ("cu_num_draft_tokens_ptr", "bonus_token_ids_ptr", "is_greedy_ptr")


@case("RRS-11", above=["2^-30", "2^-50"])
def test_u_is_compared_in_its_own_precision(op: OpUnderTest, above: str) -> None:
    """p/q is exactly one half, and u slightly more, which float32 cannot represent; a rate of one half has less.

    Without draft probabilities p is one half.
    """
    gap = 2.0**-30 if above == "2^-30" else 2.0**-50
    p, q = [0.25, 0.5, 0.25], [0.5, 0.25, 0.25]
    rate = {"synthetic_conditional_rates_ptr": [0.5], "SYNTHETIC_MODE": True}
    for sure in (0, 3):
        op.check_outputs(behind_sure_drafts(one(p, q, 0.5 + gap), sure))
        op.check_outputs(behind_sure_drafts(one(q, None, 0.5 + gap), sure))
        op.check_outputs(behind_sure_drafts({**one(p, q, 0.5 - gap), **rate}, sure))


@case("RRS-11", size="large")
def test_u_keeps_its_precision_in_every_thread(op: OpUnderTest, engine: Engine) -> None:
    """More requests than one thread takes have p/q = 0.5. Every other u is larger by bits that float64 alone has."""
    requests = PROGRAMS if is_slow(engine) else WORK
    single = one([0.25, 0.5, 0.25], [0.5, 0.25, 0.25], 0.5)
    rows = {name: np.repeat(np.array(v), requests, axis=0) for name, v in single.items() if isinstance(v, list)}
    rows["cu_num_draft_tokens_ptr"] = np.arange(1, requests + 1)
    rows["uniform_probs_ptr"] = np.where(np.arange(requests) % 2, 0.5, 0.5 + 2.0**-50)
    op.check_outputs({**single, **rows})


@case("RRS-12", counts=["one", "ragged", "gaps", "longest"], draft=DRAFT, reach=SYNTHETIC_REACH)
def test_synthetic_mode_accepts_by_rate(op: OpUnderTest, seed: int, counts: str, draft: str) -> None:
    batch = rng_batch(seed, counts, draft)
    rates = np.linspace(0.9, 0.3, batch.most)
    op.check_outputs(random_arguments(batch, rates=rates))


@case("RRS-12", u=["equal", "below", "zero rate", "unit rate"], reach=SYNTHETIC_REACH)
def test_synthetic_mode_is_strict(op: OpUnderTest, u: str) -> None:
    value, rate = {"equal": (0.5, 0.5), "below": (0.25, 0.5), "zero rate": (0.0, 0.0), "unit rate": (0.99, 1.0)}[u]
    arguments = one([1.0, 0.0, 0.0], [0.5, 0.25, 0.25], value)
    op.check_outputs({**arguments, "synthetic_conditional_rates_ptr": [rate], "SYNTHETIC_MODE": True})


@case("RRS-12", p="0", draft=DRAFT, reach=SYNTHETIC_REACH)
def test_synthetic_mode_accepts_what_the_target_excludes(op: OpUnderTest, draft: str) -> None:
    """Neither u nor the rate is near the other, so that probabilities alone can decide otherwise.

    The draft's probability of its token may be 0 too, as one that is rounded down.
    """
    for q in ([0.5, 0.25, 0.25], [0.0, 0.5, 0.5]) if draft == "present" else (None,):
        for u, rate in ((0.25, 0.75), (0.0, 1.0), (0.75, 0.25)):
            arguments = one([0.0, 0.5, 0.5], q, u)
            op.check_outputs({**arguments, "synthetic_conditional_rates_ptr": [rate], "SYNTHETIC_MODE": True})


@case("RRS-12", bits=[9, 12, 16, 23], reach=SYNTHETIC_REACH)
def test_no_bit_of_a_rate_is_lost(op: OpUnderTest, bits: int) -> None:
    """Rates that need `bits` bits after the point; u is equal, which rejects, or one float32 less, which accepts."""
    for rate in (np.float32(0.5 + 2.0**-bits), np.float32(1 - 2.0**-bits)):
        for u in (rate, np.nextafter(rate, np.float32(0))):
            arguments = one([1.0, 0.0, 0.0], [0.5, 0.25, 0.25], float(u))
            op.check_outputs({**arguments, "synthetic_conditional_rates_ptr": [rate], "SYNTHETIC_MODE": True})


def strided_batches(seed: int, draft: str) -> Iterator[Batch]:
    """Yield a random batch, and one whose drafts all pass, while every other element of their rows is 0 and rejects."""
    yield rng_batch(seed, "gaps", draft)
    batch = rng_batch(seed, "gaps", draft)
    batch.target_probs[:] = 0.0
    if batch.draft_probs is not None:
        batch.draft_probs[:] = 0.0
    force(batch, True)
    yield batch


@case("RRS-13", draft=DRAFT)
def test_row_strides(op: OpUnderTest, seed: int, draft: str) -> None:
    names = ("output_token_ids_ptr", "target_probs_ptr", "draft_probs_ptr")
    for batch in strided_batches(seed, draft):
        op.check_outputs(random_arguments(batch), layouts=dict.fromkeys(names, "padded"))


@case("RRS-14", layout=["gapped", "transposed"], draft=DRAFT)
def test_inner_strides(op: OpUnderTest, seed: int, layout: str, draft: str) -> None:
    layouts = dict.fromkeys((t.name for t in CONTRACT.tensors), layout)
    for batch in strided_batches(seed, draft):
        op.check_outputs(random_arguments(batch), layouts=layouts)


@case("RRS-15", draft=DRAFT, size="large", reach="14,135 draft tokens over a vocabulary of 151,936 pass 2^31 elements")
def test_rows_past_2_to_the_31(op: OpUnderTest, draft: str) -> None:
    """Only the last request's rows are nonzero; a 32-bit offset reads zeros and rejects."""
    import torch

    vocab, rows = 151_936, 2**31 // 151_936 + 8
    counts = np.full(rows // 8, 8)
    tokens = int(counts.sum())
    ids = np.full(tokens, vocab - 1)
    target = sparse_zeros(tokens, vocab, torch.float32, op.device)
    target[-8:, -1] = 0.75
    quotient = None
    if draft == "present":
        quotient = sparse_zeros(tokens, vocab, torch.float32, op.device)
        quotient[:, -1] = 0.75
    rows_out = op.run(
        {
            "synthetic_conditional_rates_ptr": None,
            "output_token_ids_ptr": np.full((len(counts), 9), -1),
            "cu_num_draft_tokens_ptr": np.cumsum(counts),
            "draft_token_ids_ptr": ids,
            "bonus_token_ids_ptr": np.full((len(counts), 1), 7),
            "recovered_token_ids_ptr": np.full(tokens, 3),
            "uniform_probs_ptr": np.full(tokens, 0.5),
            "is_greedy_ptr": np.zeros(len(counts), dtype=bool),
            "max_spec_len": 8,
            "vocab_size": vocab,
            "NO_DRAFT_PROBS": quotient is None,
            "SYNTHETIC_MODE": False,
        },
        target_probs_ptr=target,
        draft_probs_ptr=quotient,
    )["output_token_ids_ptr"]
    expected = np.full_like(rows_out, -1)
    expected[:, 0] = 3
    expected[-1] = [vocab - 1] * 8 + [7]
    assert_same("rows past 2^31 elements", expected, rows_out)


@case("RRS-16", counts=["none", "empty"])
def test_no_drafts_at_all(op: OpUnderTest, seed: int, counts: str) -> None:
    op.check_outputs(random_arguments(rng_batch(seed, counts, "present")))


def width_reach(params: Mapping[str, Any]) -> str | None:
    return REACH if params["ids"] == "int32" and params["u"] == "float64" else None


@case("RRS-17", ids=["int32", "int64", "mixed", "swapped"], u=["float32", "float64"], reach=width_reach)
def test_integer_widths(op: OpUnderTest, seed: int, ids: str, u: str) -> None:
    dtypes = {**integers(CONTRACT, ids), "uniform_probs_ptr": u}
    op.check_outputs(random_arguments(rng_batch(seed, "gaps", "present")), dtypes=dtypes)


@case("RRS-18", dtype=["bfloat16", "float16"], draft=DRAFT)
def test_narrow_probabilities(op: OpUnderTest, seed: int, dtype: str, draft: str) -> None:
    """Both of a type, and the draft's alone: the wider ones of the target keep all of their bits."""
    batch = rng_batch(seed, "ragged", draft, dtype=dtype)
    op.check_outputs(random_arguments(batch), dtypes={"target_probs_ptr": dtype, "draft_probs_ptr": dtype})
    if draft == "present":
        batch = random_batch(np.random.default_rng(seed), (1,) * 33, 37)
        at = np.arange(33), batch.draft_token_ids
        batch.draft_probs, batch.is_greedy = np.full((33, 37), 0.5), np.zeros(33, bool)
        batch.target_probs[at] = np.float32(0.25) + np.float32(2.0**-13)
        batch.uniform[:] = 0.5 + 2.0**-13
        op.check_outputs(random_arguments(batch), dtypes={"draft_probs_ptr": dtype})


@case("RRS-1", mode="generated", draft=DRAFT, reach=REACH)
def test_generated_batches(op: OpUnderTest, seed: int, draft: str) -> None:
    """Any counts, vocabulary and mix of greedy and sampled requests, in production dtypes."""

    @explore(structures(CONTRACT, layouts=False, some_draft=True), 150, seed)
    def check(drawn: DrawnCall) -> None:
        rng = np.random.default_rng(drawn.seed)
        op.check_outputs(
            random_arguments(random_batch(rng, drawn.counts, drawn.vocab, draft=draft == "present", greedy=0.3))
        )


@case("RRS-14", mode="generated", draft=DRAFT)
def test_generated_dtypes_and_layouts(op: OpUnderTest, seed: int, draft: str) -> None:
    @explore(structures(CONTRACT, same=(("target_probs_ptr", "draft_probs_ptr"),)), 150, seed)
    def check(drawn: DrawnCall) -> None:
        dtype = drawn.dtypes["target_probs_ptr"]
        rng = np.random.default_rng(drawn.seed)
        batch = random_batch(rng, drawn.counts, drawn.vocab, draft=draft == "present", greedy=0.3, dtype=dtype)
        op.check_outputs(random_arguments(batch), dtypes=drawn.dtypes, layouts=drawn.layouts)


@case("RRS-1", relation=["permuted", "split"], draft=DRAFT, reach=drafted_reach)
def test_requests_do_not_see_each_other(op: OpUnderTest, seed: int, relation: str, draft: str) -> None:
    batch = rng_batch(seed, "gaps", draft, greedy=0.3)
    arguments = random_arguments(batch)
    arguments["output_token_ids_ptr"] = np.full((batch.requests, batch.most + 1), -1)
    if relation == "permuted":
        relation_of_permuting(op, arguments, batch.counts, np.random.default_rng(seed))
    else:
        relation_of_splitting(op, arguments, batch.counts)

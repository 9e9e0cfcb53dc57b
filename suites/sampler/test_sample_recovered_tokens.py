"""Requirements of sample_recovered_tokens (contract SRT).

Scores compare exactly: the difference and the product of SRT-1 are single IEEE operations, so that every implementation
computes the same numbers and the same argmax.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.batches import COUNTS, Batch, random_batch
from verispec.cases.strategies import DrawnCall, explore, structures
from verispec.judge import OpUnderTest, assert_same, sparse_zeros
from verispec.reference import contracts
from verispec.suites.sampler import _ends
from verispec.suites.sampler._callers import of_vocabulary
from verispec.suites.sampler._rejection import REACH, integers, permuted, recovered_arguments

CONTRACT = contracts.load("sample_recovered_tokens")
DRAFT = ["present", "absent"]
ODD_VOCABULARIES = [1, 2, 127, 8192, 8193, 10_000]
"""Sizes around a tile of 8192, and one that is not a multiple of a power of two."""


def rng_batch(seed: int, counts: str, draft: str, vocab: int = 37, **options: Any) -> Batch:
    return random_batch(np.random.default_rng(seed), COUNTS[counts], vocab, draft=draft == "present", **options)


def check(op: OpUnderTest, batch: Batch, dtypes: Mapping[str, str] | None = None, **options: Any) -> None:
    noise = (dtypes or {}).get("inv_q_ptr", "float32")
    op.check_outputs(recovered_arguments(batch, USE_FP64_GUMBEL=noise == "float64"), dtypes=dtypes, **options)


def rows(batch: Batch, p: Any, q: Any) -> None:
    """Set the same target and draft row at every position."""
    batch.target_probs[:] = p
    if batch.draft_probs is not None:
        batch.draft_probs[:] = q


@case("SRT-1", counts=["one", "even", "ragged", "gaps", "wide", "longest"], reach=REACH)
def test_argmax_of_the_residual(op: OpUnderTest, seed: int, counts: str) -> None:
    check(op, rng_batch(seed, counts, "present"))


@case("SRT-1", check="tiny residuals", draft=DRAFT)
def test_no_residual_is_too_small(op: OpUnderTest, seed: int, draft: str) -> None:
    """Token 0 has no residual and is the draft; all others are below 10^-30, with products that float32 holds."""
    batch = rng_batch(seed, "ragged", draft)
    tiny = np.random.default_rng(seed).integers(1, 500, batch.target_probs.shape) * 2.0**-110
    rows(batch, tiny, 0.0)
    batch.target_probs[:, 0] = 0.5
    if batch.draft_probs is not None:
        batch.draft_probs[:, 0] = 0.5
    batch.draft_token_ids[:] = 0
    check(op, batch)


@case("SRT-1", check="large noise", draft=DRAFT)
def test_no_reciprocal_of_noise_is_too_large(op: OpUnderTest, seed: int, draft: str) -> None:
    """Reciprocals past 2^70 and residuals below 2^-50, with products that float32 holds; token 0 is the draft."""
    batch = rng_batch(seed, "ragged", draft)
    rng = np.random.default_rng(seed)
    rows(batch, rng.integers(1, 500, batch.target_probs.shape) * 2.0**-60, 0.0)
    batch.inv_q[:] = rng.integers(1, 500, batch.inv_q.shape) * 2.0**70
    batch.draft_token_ids[:] = 0
    check(op, batch)


@case("SRT-1", check="infinite noise", draft=DRAFT)
def test_an_infinite_reciprocal_wins(op: OpUnderTest, seed: int, draft: str) -> None:
    """Noise below 2^-128 has no finite reciprocal in float32: its token wins, wherever it lies in the row.

    Each request has one such token, with a residual in every row.
    """
    batch = rng_batch(seed, "ragged", draft)
    rows(batch, 0.25, 0.125)
    batch.draft_token_ids[:] = 1
    batch.inv_q[np.arange(batch.requests), [0, 36, 17, 2][: batch.requests]] = np.inf
    check(op, batch)


@case("SRT-1", check="close scores", draft=DRAFT)
def test_scores_that_a_logarithm_confuses(op: OpUnderTest, seed: int, draft: str) -> None:
    """The largest score is by 2^-21 above the others: four roundings of a product, and less than one of a logarithm."""
    batch = rng_batch(seed, "ragged", draft)
    rng = np.random.default_rng(seed)
    rows(batch, 2.0**-60, 2.0**-61)
    batch.inv_q[:] = 2.0**60 * np.exp(rng.normal(size=(len(batch.inv_q), 1)))
    best = rng.integers(1, batch.inv_q.shape[1], len(batch.inv_q))
    batch.inv_q[np.arange(len(best)), best] *= 1 + 2.0**-21
    batch.draft_token_ids[:] = 0
    check(op, batch)


@case("SRT-2", counts=["one", "even", "ragged", "gaps", "wide", "longest"], reach=REACH)
def test_argmax_without_the_draft_token(op: OpUnderTest, seed: int, counts: str) -> None:
    check(op, rng_batch(seed, counts, "absent"))


@case("SRT-2", check="draft would win", reach=REACH)
def test_the_draft_token_never_wins(op: OpUnderTest, seed: int) -> None:
    """Random drafts, then the first id of the vocabulary and the last one as every draft."""
    for token in (None, 0, 36):
        batch = rng_batch(seed, "ragged", "absent")
        if token is not None:
            batch.draft_token_ids[:] = token
        batch.target_probs[np.arange(batch.tokens), batch.draft_token_ids] = 0.99
        check(op, batch)


@case("SRT-3", draft=DRAFT, vocab=[37, 8193], reach=REACH)
def test_the_lowest_of_equal_scores_wins(op: OpUnderTest, seed: int, draft: str, vocab: int) -> None:
    """Powers of two make equal scores equal in any arithmetic, in every tile and lane.

    Then the first token scores half as much as the last one, the draft token, which counts with draft probabilities
    alone.
    """
    batch = rng_batch(seed, "ragged", draft, vocab)
    rows(batch, 0.25, 0.125)
    batch.inv_q[:] = 1.0
    batch.inv_q[:, [5, vocab // 2, vocab - 1]] = 4.0
    batch.draft_token_ids[:] = [5, 0, 1] + [vocab - 1] * (batch.tokens - 3)
    check(op, batch)
    batch.inv_q[:] = 1.0
    batch.inv_q[:, [0, vocab - 1]] = 4.0, 8.0
    batch.draft_token_ids[:] = vocab - 1
    check(op, batch)


@case("SRT-3", check="many rows", draft=DRAFT)
def test_the_lowest_of_equal_scores_in_many_rows(op: OpUnderTest, seed: int, draft: str) -> None:
    """Buffers of so many rows that a program reads every fourth tile of one, or all; equal scores lie in many tiles.

    Callers allocate a row per draft token: no production call has rows behind the last count.
    """
    vocab, rng = 9001, np.random.default_rng(seed)
    batch = rng_batch(seed, "ragged", draft, vocab)
    rows(batch, 0.25, 0.125)
    for noise, first in zip(batch.inv_q, rng.integers(0, vocab, batch.requests), strict=True):
        noise[:] = np.where(np.arange(vocab) < first, 0.5, 1.0)
    batch.draft_token_ids[:] = vocab // 2
    for room in (140, 260):

        def longer(rows: Any, room: int = room) -> Any:
            return None if rows is None else np.concatenate((rows, np.repeat(rows[:1], room - len(rows), axis=0)))

        values = recovered_arguments(
            batch,
            draft_token_ids_ptr=longer(batch.draft_token_ids),
            target_probs_ptr=longer(batch.target_probs),
            draft_probs_ptr=longer(batch.draft_probs),
        )
        op.check_outputs(values, shapes={"output_token_ids_ptr": (room,)})


@case("SRT-4", draft=DRAFT, reach=REACH)
def test_positions_share_the_noise_row_of_their_request(op: OpUnderTest, seed: int, draft: str) -> None:
    """Uniform residuals: the noise alone decides, and each request's noise has its own argmax.

    The last request then has the noise of the first one, and those between them still have their own.
    """
    batch = rng_batch(seed, "gaps", draft)
    rows(batch, 0.25, 0.125)
    batch.draft_token_ids[:] = 0
    batch.inv_q[:] = 1.0
    batch.inv_q[np.arange(batch.requests), 3 + 4 * np.arange(batch.requests)] = 8.0
    check(op, batch)
    batch.inv_q[-1] = batch.inv_q[0]
    check(op, batch)


@case("SRT-5", vocab=ODD_VOCABULARIES, draft=DRAFT, reach=of_vocabulary)
def test_any_vocabulary(op: OpUnderTest, seed: int, vocab: int, draft: str) -> None:
    check(op, rng_batch(seed, "ragged", draft, vocab))


@case("SRT-5", check=_ends.AT_ENDS, vocab=_ends.VOCABS, draft=DRAFT, reach=_ends.REACH)
def test_an_id_at_an_end_is_recovered(op: OpUnderTest, seed: int, vocab: int, draft: str) -> None:
    """The best score of all ids, then the only residual."""
    batch, at, ids = end_batch(seed, vocab, draft)
    batch.inv_q[at, ids] = 2 * batch.inv_q.max()
    rows(batch, 2.0**-14, 2.0**-15)
    check(op, batch)
    rows(batch, 0.0, 2.0**-14)
    batch.target_probs[at, ids] = 1.0
    check(op, batch)


@case("SRT-9", check=_ends.AT_ENDS, vocab=_ends.VOCABS)
def test_the_fallback_finds_an_id_at_an_end(op: OpUnderTest, seed: int, vocab: int) -> None:
    """It is the only mass of a target that its draft equals, so that no draft of it would be rejected."""
    batch, at, ids = end_batch(seed, vocab, "present")
    rows(batch, 0.0, 0.0)
    batch.target_probs[at, ids] = 1.0
    batch.draft_probs = batch.target_probs.copy()
    check(op, batch)


def end_batch(seed: int, vocab: int, draft: str) -> tuple[Batch, Any, Any]:
    """Return requests of one draft each, which is the id before one of `end_ids`; their rows and these ids."""
    ids = _ends.end_ids(vocab)
    batch = random_batch(np.random.default_rng(seed), (1,) * len(ids), vocab, draft=draft == "present")
    batch.draft_token_ids[:] = (ids - 1) % vocab
    return batch, np.arange(len(ids)), ids


@case("SRT-5", check="ids past 65,536", draft=DRAFT, reach=REACH)
def test_ids_past_65_536(op: OpUnderTest, seed: int, draft: str) -> None:
    """Each request's best token needs 17 bits. So does its draft token, which would win without draft probabilities."""
    batch = rng_batch(seed, "ragged", draft, 66_000)
    rows(batch, 0.25, 0.125)
    rng = np.random.default_rng(seed)
    batch.inv_q[:] = rng.random(batch.inv_q.shape)
    requests = np.arange(batch.requests)
    best, drafted = rng.permutation(400)[: 2 * batch.requests].reshape(2, -1) + 2**16
    batch.inv_q[requests, best] = 8.0
    if draft == "absent":
        batch.inv_q[requests, drafted] = 16.0
        batch.draft_token_ids[:] = np.repeat(drafted, batch.counts)
    check(op, batch)


@case(
    "SRT-5", zero=["tail", "last tile", "all but one"], vocab=[8193, 10_000], reach="top-k and top-p leave zero tails"
)
def test_zero_tails(op: OpUnderTest, seed: int, zero: str, vocab: int) -> None:
    batch = rng_batch(seed, "ragged", "present", vocab)
    start = {"tail": 50, "last tile": 8192, "all but one": 1}[zero]
    batch.target_probs[:, start:] = 0.0
    if zero == "all but one":
        rows(batch, [0.5] + [0.0] * (vocab - 1), [0.25] + [0.0] * (vocab - 1))
    check(op, batch)


@case(
    "SRT-5", hostile=["zero", "nan", "negative"], vocab=[37, 8193], draft=DRAFT, check="valid id whatever the rows hold"
)
def test_the_id_is_valid_whatever_the_rows_hold(
    op: OpUnderTest, seed: int, hostile: str, vocab: int, draft: str
) -> None:
    """Only the range is checked here; SRT-8 and SRT-9 check the token of a degenerate row."""
    batch = rng_batch(seed, "ragged", draft, vocab)
    rows(batch, {"zero": 0.0, "nan": np.nan, "negative": -0.5}[hostile], 0.25)
    batch.draft_token_ids[::2] = -1  # a draft token of the vocabulary has score 0, which would hide the tail
    values = recovered_arguments(batch, output_token_ids_ptr=np.full(batch.tokens, -7))
    got = op.call(values)[1]["output_token_ids_ptr"]
    assert_same("every id lies in [0, vocab_size)", np.clip(got, 0, vocab - 1), got)


@case("SRT-6", draft=DRAFT)
def test_float64_noise_is_not_narrowed(op: OpUnderTest, seed: int, draft: str) -> None:
    """Noises that differ by 2^-40: float32 makes them equal, so that the lower id would win."""
    batch = rng_batch(seed, "ragged", draft)
    rows(batch, 0.25, 0.125)
    batch.draft_token_ids[:] = 0
    batch.inv_q[:] = 0.5
    batch.inv_q[:, 7] = 1.0
    batch.inv_q[:, 11] = 1.0 + 2.0**-40
    check(op, batch, {"inv_q_ptr": "float64"})


@case("SRT-6", draft=DRAFT, check="rivals far apart", vocab=[4100, 10_000])
def test_float64_noise_of_tokens_far_apart_is_not_narrowed(op: OpUnderTest, seed: int, draft: str, vocab: int) -> None:
    """As above, with the better token farther behind in each request, up to the end of its row.

    Programs that share a row compare the winners of their parts: float32 scores of these would be equal too.
    """
    batch = random_batch(np.random.default_rng(seed), (1,) * 8, vocab, draft=draft == "present")
    rows(batch, 0.25, 0.125)
    batch.draft_token_ids[:] = 0
    batch.inv_q[:] = 0.5
    batch.inv_q[:, 7] = 1.0
    better = [8, 40, 263, 1031, 2055, 4000, vocab - 2, vocab - 1]
    batch.inv_q[np.arange(8), better] = 1.0 + 2.0**-40
    check(op, batch, {"inv_q_ptr": "float64"})


@case("SRT-1", noise="float64", counts=["ragged", "gaps"], draft=DRAFT, reach="use_fp64_gumbel draws float64 noise")
def test_float64_noise(op: OpUnderTest, seed: int, counts: str, draft: str) -> None:
    check(op, rng_batch(seed, counts, draft), {"inv_q_ptr": "float64"})


@case(
    "SRT-7",
    token=[-1, 37, 2**31 - 1],
    reach=lambda p: "the scheduler pads drafts with -1" if p["token"] == -1 else None,
)
def test_a_draft_outside_the_vocabulary_leaves_nothing_out(op: OpUnderTest, seed: int, token: int) -> None:
    """The first or last token, which a wrapped or clamped index would exclude, is the one to be sampled."""
    batch = rng_batch(seed, "ragged", "absent")
    batch.draft_token_ids[[0, 5, 10]] = token
    batch.inv_q[:] = 1.0
    batch.target_probs[[0, 5, 10]] = 0.5 / 36
    batch.target_probs[[0, 5, 10], [36, 0, 36]] = 0.5
    check(op, batch)


@case("SRT-7", token=[-1], draft="present", reach="the scheduler pads drafts with -1")
def test_a_padding_token_with_draft_probabilities(op: OpUnderTest, seed: int, token: int) -> None:
    batch = rng_batch(seed, "ragged", "present")
    batch.draft_token_ids[[0, 5, 10]] = token
    check(op, batch)


@case("SRT-8", nan=["p", "q"], at=["first", "last", "all but one"])
def test_nan_never_wins(op: OpUnderTest, seed: int, nan: str, at: str) -> None:
    batch = rng_batch(seed, "ragged", "present")
    batch.target_probs[:, 20], batch.draft_probs[:, 20] = 0.5, 0.25  # type: ignore[index]
    where = {"first": [0], "last": [36], "all but one": [v for v in range(37) if v != 20]}[at]
    (batch.target_probs if nan == "p" else batch.draft_probs)[:, where] = np.nan  # type: ignore[index]
    check(op, batch)


@case("SRT-8", nan="p", draft="absent")
def test_nan_never_wins_without_draft_probabilities(op: OpUnderTest, seed: int) -> None:
    """The first id, the last one, or all but one are NaN, row by row."""
    batch = rng_batch(seed, "ragged", "absent")
    batch.target_probs[:, 20] = 0.5
    batch.draft_token_ids[:] = 3
    batch.target_probs[0::3, 0] = batch.target_probs[1::3, 36] = np.nan
    batch.target_probs[2::3, np.arange(37) != 20] = np.nan
    check(op, batch)


@case("SRT-9", row=["equal", "draft larger", "all zero", "all nan q"])
def test_a_row_without_residual_falls_back_to_the_target(op: OpUnderTest, seed: int, row: str) -> None:
    without_residual(op, seed, row, 37)


@case("SRT-9", row=["equal", "draft larger", "all zero", "all nan q"], vocab=[10_000])
def test_the_fallback_searches_every_tile(op: OpUnderTest, seed: int, row: str, vocab: int) -> None:
    """Requests draw with noise of their own, so that a neighbour's noise gives another token."""
    without_residual(op, seed, row, vocab)


def without_residual(op: OpUnderTest, seed: int, row: str, vocab: int) -> None:
    batch = rng_batch(seed, "ragged", "present", vocab)
    if row == "equal":
        batch.draft_probs = batch.target_probs.copy()
    else:
        q = {"draft larger": 1.0, "all zero": 0.0, "all nan q": np.nan}[row]
        rows(batch, 0.0 if row == "all zero" else batch.target_probs, q)
    check(op, batch)


@case("SRT-9", row=["certain draft"], draft=["absent"])
def test_a_certain_draft_without_residual_falls_back_to_itself(
    op: OpUnderTest, seed: int, row: str, draft: str
) -> None:
    """The target gives the draft token all mass, so that nothing is left without it."""
    batch = rng_batch(seed, "ragged", draft)
    rows(batch, 0.0, None)
    batch.target_probs[np.arange(batch.tokens), batch.draft_token_ids] = 1.0
    check(op, batch)


@case("SRT-1", requests=[65, 300], draft=DRAFT, size="parallel", reach="large batches")
def test_many_requests_in_parallel(op: OpUnderTest, seed: int, requests: int, draft: str) -> None:
    """More work than any threshold of parallel loops; positions reach the eighth."""
    rng = np.random.default_rng(seed)
    counts = np.where(np.arange(requests) % 5 == 0, 8, rng.integers(0, 3, requests))
    batch = random_batch(rng, counts, 1031, draft=draft == "present")
    check(op, batch)


@case("SRT-1", check="parts of wide rows", draft=DRAFT, reach="a row is shared out where drafts are few")
def test_seventy_drafts_over_wide_rows(op: OpUnderTest, seed: int, draft: str) -> None:
    check(op, random_batch(np.random.default_rng(seed), (14,) * 5, 4100, draft=draft == "present"))


@case("SRT-10", counts=["none", "empty"])
def test_no_drafts(op: OpUnderTest, seed: int, counts: str) -> None:
    check(op, rng_batch(seed, counts, "present"))


@case("SRT-11", draft=DRAFT)
def test_row_strides(op: OpUnderTest, seed: int, draft: str) -> None:
    """Of small rows, and of wide rows without a residual, which are read again."""
    names = ("target_probs_ptr", "draft_probs_ptr", "inv_q_ptr")
    check(op, rng_batch(seed, "gaps", draft), layouts=dict.fromkeys(names, "padded"))
    batch = rng_batch(seed, "gaps", draft, 4100)
    if draft == "present":
        batch.draft_probs = batch.target_probs.copy()
    check(op, batch, layouts=dict.fromkeys(names, "padded"))


@case("SRT-12", layout=["gapped", "transposed"], draft=DRAFT)
def test_inner_strides(op: OpUnderTest, seed: int, layout: str, draft: str) -> None:
    check(op, rng_batch(seed, "gaps", draft), layouts=dict.fromkeys((t.name for t in CONTRACT.tensors), layout))


@case("SRT-13", size="large", reach="14,135 draft tokens over a vocabulary of 151,936 pass 2^31 elements")
def test_rows_past_2_to_the_31(op: OpUnderTest) -> None:
    """Only the last token's row is nonzero; a 32-bit offset reads zeros and finds token 0.

    A batch of two rows comes first: what is wrong there says nothing about offsets.
    """
    import torch

    vocab = 151_936
    for relation, tokens in (("the row of a small batch", 2), ("the row past 2^31 elements", 2**31 // vocab + 2)):
        requests = -(-tokens // 128)
        target = sparse_zeros(tokens, vocab, torch.float32, op.device)
        target[-1, vocab - 3] = 0.5
        values = {
            "output_token_ids_ptr": np.full(tokens, -7),
            "cu_num_draft_tokens_ptr": np.minimum(np.arange(1, requests + 1) * 128, tokens),
            "draft_token_ids_ptr": np.zeros(tokens, dtype=np.int64),
            "inv_q_ptr": np.ones((requests, vocab)),
            "vocab_size": vocab,
            "NO_DRAFT_PROBS": True,
            "USE_FP64_GUMBEL": False,
        }
        got = op.run(values, target_probs_ptr=target, draft_probs_ptr=None)["output_token_ids_ptr"]
        assert_same(relation, vocab - 3, got[-1])
        del target


def width_reach(params: Mapping[str, Any]) -> str | None:
    return REACH if params["ids"] == "int32" else None


@case("SRT-14", ids=["int32", "int64", "mixed", "swapped"], draft=DRAFT, reach=width_reach)
def test_integer_widths(op: OpUnderTest, seed: int, ids: str, draft: str) -> None:
    check(op, rng_batch(seed, "gaps", draft), integers(CONTRACT, ids))


@case("SRT-15", dtype=["bfloat16", "float16"], draft=DRAFT)
def test_narrow_probabilities(op: OpUnderTest, seed: int, dtype: str, draft: str) -> None:
    batch = rng_batch(seed, "ragged", draft, dtype=dtype)
    check(op, batch, {"target_probs_ptr": dtype, "draft_probs_ptr": dtype})


@case("SRT-15", dtype="float16", check="subnormals", draft=DRAFT)
def test_subnormal_probabilities_count(op: OpUnderTest, seed: int, draft: str) -> None:
    """Only the least likely winner of a row is 2^-14 or more; below it float16 is subnormal, and must not be zero."""
    batch = rng_batch(seed, "ragged", draft, dtype="float16")
    steps = np.random.default_rng(seed).integers(1, 500, batch.target_probs.shape)
    rows(batch, steps * 2.0**-24, 0.0)
    for b in range(batch.requests):
        batch.target_probs[batch.at(b), np.argmin(batch.inv_q[b])] = 2.0**-14
    check(op, batch, {"target_probs_ptr": "float16", "draft_probs_ptr": "float16"})


@case("SRT-1", mode="generated", draft=DRAFT, reach=REACH)
def test_generated_batches(op: OpUnderTest, seed: int, draft: str) -> None:
    @explore(structures(CONTRACT, layouts=False, some_draft=True), 150, seed)
    def check_drawn(drawn: DrawnCall) -> None:
        rng = np.random.default_rng(drawn.seed)
        check(op, random_batch(rng, drawn.counts, drawn.vocab, draft=draft == "present"))


@case("SRT-12", mode="generated", draft=DRAFT)
def test_generated_dtypes_and_layouts(op: OpUnderTest, seed: int, draft: str) -> None:
    @explore(structures(CONTRACT, same=(("target_probs_ptr", "draft_probs_ptr"),)), 150, seed)
    def check_drawn(drawn: DrawnCall) -> None:
        rng = np.random.default_rng(drawn.seed)
        dtype = drawn.dtypes["target_probs_ptr"]
        batch = random_batch(rng, drawn.counts, drawn.vocab, draft=draft == "present", dtype=dtype)
        check(op, batch, drawn.dtypes, layouts=drawn.layouts)


@case("SRT-4", relation="permuted", draft=DRAFT, reach=REACH)
def test_a_permuted_batch_gives_permuted_tokens(op: OpUnderTest, seed: int, draft: str) -> None:
    batch = rng_batch(seed, "gaps", draft)
    arguments = recovered_arguments(batch)
    order = np.random.default_rng(seed).permutation(batch.requests)
    tokens = op.call_written(arguments)["output_token_ids_ptr"]
    moved = op.call(permuted(arguments, batch.counts, order))[1]["output_token_ids_ptr"]
    assert_same("a permuted batch gives permuted tokens", np.concatenate([tokens[batch.at(b)] for b in order]), moved)


@case("SRT-16", extra=[1, 100])
def test_past_the_last_count_nothing_is_written(op: OpUnderTest, seed: int, extra: int) -> None:
    """Token buffers longer than the last count."""
    batch = rng_batch(seed, "ragged", "present")
    longer = random_batch(np.random.default_rng(seed), (batch.tokens + extra,), batch.vocab)
    values = recovered_arguments(
        batch,
        draft_token_ids_ptr=longer.draft_token_ids,
        target_probs_ptr=longer.target_probs,
        draft_probs_ptr=longer.draft_probs,
    )
    op.check_outputs(values, shapes={"output_token_ids_ptr": (batch.tokens + extra,)})

"""Requirements of residual_resample (contract RSR).

Every token is the Gumbel-max argmax of fixed random samples and is compared exactly. Two scores are within the rounding
of RSR-14 about once in 10^5 rows; check such a failure by hand.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.request_state import Array, RequestBatch
from verispec.judge import OpUnderTest, assert_same
from verispec.reference.oracle.philox import Draw, gumbel_rows
from verispec.suites.sampler import _ends
from verispec.suites.sampler._callers import of_vocabulary
from verispec.suites.sampler._level_rows import level_rows
from verispec.suites.sampler._request_state import (
    COUNTS,
    DRAFT,
    REACH,
    batch,
    drafted_reach,
    layouts,
    normalisers,
    widths,
)

STEPS = ["first", "last", "bonus"]


def arguments(op: OpUnderTest, requests: RequestBatch, step: str, ratio: float | None = None) -> dict[str, Any]:
    """Return requests rejected at their first or last draft token or not at all, with the normalisers of that row."""
    count = np.array([max(requests.drafts(b), 0) for b in range(requests.requests)])
    accepted = {"first": count * 0, "last": np.maximum(count - 1, 0), "bonus": count}[step]
    target_lse, draft_lse = normalisers(requests.arguments(op.contract), accepted)
    return requests.arguments(
        op.contract,
        sampled=np.full((requests.requests, requests.columns), 11),
        num_accepted=accepted,
        target_logsumexp=target_lse,
        draft_logsumexp=draft_lse,
        log_prefix_ratio=None if ratio is None else np.full(requests.requests, ratio),
    )


def check(op: OpUnderTest, requests: RequestBatch, step: str, ratio: float | None = None, **options: Any) -> Array:
    tokens: Array = op.check_outputs(arguments(op, requests, step, ratio), **options)["sampled"]
    return tokens


@case("RSR-1", counts=list(COUNTS), step=["first", "last"], reach=drafted_reach)
def test_drawn_from_the_residual(op: OpUnderTest, seed: int, counts: str, step: str) -> None:
    check(op, batch(seed, counts, temperature=0.7), step)


@case("RSR-2", counts=list(COUNTS), draft=DRAFT, reach=drafted_reach)
def test_the_bonus_token(op: OpUnderTest, seed: int, counts: str, draft: str) -> None:
    check(op, batch(seed, counts, draft, temperature=1.0), "bonus")


@case("RSR-3", counts=list(COUNTS), reach=drafted_reach)
def test_one_hot_drafts(op: OpUnderTest, seed: int, counts: str) -> None:
    """The draft token would nearly always win if it were not excluded."""
    requests = batch(seed, counts, "absent", temperature=1.0)
    for row in range(len(requests.target_logits) - 1):
        requests.target_logits[row, requests.draft_sampled[row + 1]] = 40.0
    check(op, requests, "first")


@case("RSR-4", token=[-1, 37], draft=DRAFT, reach=lambda p: "vllm 0.27.0 did otherwise" if p["token"] == -1 else None)
def test_a_padding_token_is_resampled_from_the_target(op: OpUnderTest, seed: int, token: int, draft: str) -> None:
    """Every draft row is the likelier half of the target's, so that a residual never gives these tokens."""
    requests = batch(seed, "ragged", draft, temperature=1.0)
    requests.draft_sampled[:] = token
    row = requests.target_logits[0]
    requests.target_logits[:] = row
    if requests.draft_logits is not None:
        requests.draft_logits[:] = np.where(row > np.median(row), row, -40.0)
    check(op, requests, "first")


@case("RSR-5", vocab=[37, 8193], gap=["1", "10", "20"], reach=REACH)
def test_a_small_q_counts(op: OpUnderTest, seed: int, vocab: int, gap: str) -> None:
    requests = batch(seed, "ragged", "present", vocab, temperature=1.0)
    requests.draft_logits[:, :, 1:] -= float(gap)  # type: ignore[index]
    check(op, requests, "first")


@case("RSR-6", ratio=["-0.1", "-1.0", "-4.0"], reach="rejection_sample_method=block")
def test_scaled_by_the_prefix_ratio(op: OpUnderTest, seed: int, ratio: str) -> None:
    check(op, batch(seed, "ragged", temperature=1.0), "last", float(ratio))


@case("RSR-7", step=STEPS, draft=DRAFT, reach=REACH)
def test_greedy(op: OpUnderTest, seed: int, step: str, draft: str) -> None:
    """Requests without drafts too, whose bonus row is their first."""
    for counts in ("ragged", "gaps"):
        check(op, batch(seed, counts, draft, temperature=0.0), step)


@case("RSR-8", step=STEPS, draft=DRAFT, reach=REACH)
def test_mixed_batches(op: OpUnderTest, seed: int, step: str, draft: str) -> None:
    check(op, batch(seed, "gaps", draft), step)


@case("RSR-9", check="another seed, position or step draws anew", reach=REACH)
def test_what_the_draw_depends_on(op: OpUnderTest, seed: int) -> None:
    """Uniform rows over many tokens: unchanged noise would give the same token in every request."""
    requests = batch(seed, "wide", "absent", 1_000, temperature=1.0)
    requests.target_logits[:] = 0.0
    requests.pos[:] = 7
    requests.seed[:] = 3
    first = check(op, requests, "bonus")[:, 1]
    assert_same("one seed, position and step give one token", first * 0 + first[0], first)
    requests.pos += np.arange(len(requests.pos))
    by_position = check(op, requests, "bonus")[:, 1]
    assert_same("33 positions give 33 draws", True, len(np.unique(by_position)) > 20)
    requests.pos[:] = 7
    requests.seed[:] = np.arange(len(requests.seed)) * 2**33
    by_seed = check(op, requests, "bonus")[:, 1]
    assert_same("33 seeds that differ in their upper half give 33 draws", True, len(np.unique(by_seed)) > 20)


@case("RSR-10", row=["p equals q", "q larger", "nan q"], reach=lambda p: REACH if p["row"] == "p equals q" else None)
def test_a_residual_without_mass(op: OpUnderTest, seed: int, row: str) -> None:
    without_mass(op, seed, row, 37)


@case("RSR-10", row=["p equals q", "q larger", "nan q"], vocab=[8193])
def test_a_residual_without_mass_over_many_tiles(op: OpUnderTest, seed: int, row: str, vocab: int) -> None:
    """The token of the target is searched in every tile, and not only in the first."""
    without_mass(op, seed, row, vocab)


def without_mass(op: OpUnderTest, seed: int, row: str, vocab: int) -> None:
    requests = batch(seed, "ragged", vocab=vocab, temperature=1.0)
    requests.draft_sampled[:] = 3
    if row == "nan q":
        requests.draft_logits[:] = np.nan  # type: ignore[index]
    else:
        requests.target_logits[:] = np.where(np.arange(vocab) % 2, -np.inf, 0.0)
        requests.draft_logits[:] = requests.target_logits[0]  # type: ignore[index]
    values = arguments(op, requests, "first")
    if row == "q larger":
        values["draft_logsumexp"] -= 1.0
    op.check_outputs(values)


@case("RSR-10", row="one-hot target", reach=REACH)
def test_a_target_of_one_token(op: OpUnderTest, seed: int) -> None:
    """Without the rejected draft token nothing is left: the result is the draft token."""
    requests = batch(seed, "ragged", "absent", temperature=1.0)
    requests.target_logits[:] = -np.inf
    requests.target_logits[:, 3] = 0.0
    requests.draft_sampled[:] = 3
    check(op, requests, "first")


@case("RSR-11", rows=["some", "all"], step=STEPS, draft=DRAFT)
def test_nan_rows(op: OpUnderTest, seed: int, rows: str, step: str, draft: str) -> None:
    """Rows of NaN alone have one tile or several: token 0 follows, and not the first one of the last tile."""
    every = 2 if rows == "some" else 1
    for vocab in (37,) if rows == "some" else (37, 2100):
        requests = batch(seed, "ragged", draft, vocab)
        requests.target_logits[:, ::every] = np.nan
        check(op, requests, step)


@case("RSR-11", target=[45, 8200], step=STEPS, reach="MiMo v2.5 Pro with DFlash")
def test_a_target_wider_than_the_draft(op: OpUnderTest, seed: int, target: int, step: str) -> None:
    requests = batch(seed, "ragged", "present", target, draft_vocab=37)
    requests.target_logits[:, 37:] += 20.0
    check(op, requests, step)


@case("RSR-11", check=_ends.AT_ENDS, vocab=_ends.VOCABS, draft=DRAFT, reach=_ends.REACH)
def test_an_id_at_an_end_is_drawn(op: OpUnderTest, seed: int, vocab: int, draft: str) -> None:
    requests = _ends.end_requests(seed, vocab, draft=draft == "present", accepted=False, temperature=1.0)
    for step in ("first", "bonus"):
        check(op, requests, step)


@case("RSR-12", padding=["first", "middle", "last"], draft=DRAFT)
def test_padding_touches_nothing(op: OpUnderTest, seed: int, padding: str, draft: str) -> None:
    at = {"first": [0], "middle": [1, 2], "last": [3]}[padding]
    check(op, batch(seed, "ragged", draft, padding=at), "last")


@case("RSR-13", vocab=[37, 1024, 8193], reach="quantised logits tie")
def test_the_lowest_of_equal_scores(op: OpUnderTest, seed: int, vocab: int) -> None:
    """Greedy bonus rows with equal maxima in one block and across blocks."""
    requests = batch(seed, "ragged", "absent", vocab, temperature=0.0)
    requests.target_logits[:] = 0.0
    requests.target_logits[:, [vocab // 2, vocab - 1]] = 1.0
    check(op, requests, "bonus")


@case("RSR-14", vocab=[1, 2, 127, 8193, 20_000], draft=DRAFT, reach=of_vocabulary)
def test_any_vocabulary(op: OpUnderTest, seed: int, vocab: int, draft: str) -> None:
    check(op, batch(seed, "ragged", draft, vocab, temperature=1.0), "first")


@case("RSR-14", dtype=["bfloat16", "float16"], draft=DRAFT, reach="the language-model head's own dtype")
def test_narrow_logits(op: OpUnderTest, seed: int, dtype: str, draft: str) -> None:
    """Normalisers are those of the wide logits: the op reads them and does not recompute them."""
    dtypes = {"target_logits": dtype, "draft_logits": dtype}
    check(op, batch(seed, "ragged", draft, temperature=1.0), "first", dtypes=dtypes)


@case("RSR-14", check="noise undone by logits", reach=REACH)
def test_the_precision_of_the_noise(op: OpUnderTest, seed: int) -> None:
    """Bonus tokens from logits that undo the noise, but for one token of each row."""
    requests = batch(seed, "wide", "absent", 1030, temperature=1.0)
    bonus = [requests.row(b, 1) for b in range(requests.requests)]
    places = requests.seed[requests.idx_mapping], requests.pos[bonus], np.ones(len(bonus), np.int64)
    requests.target_logits[bonus] = level_rows(gumbel_rows(*places, Draw.TARGET, 1030))
    check(op, requests, "bonus")


@case("RSR-15", layout=["gapped", "padded", "transposed"], draft=DRAFT)
def test_strides(op: OpUnderTest, seed: int, layout: str, draft: str) -> None:
    check(op, batch(seed, "gaps", draft), "last", layouts=layouts(op, layout))


@case("RSR-15", ids=["int32", "int64"])
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    requests = batch(seed, "gaps")
    requests.pos %= 2**31
    check(op, requests, "last", dtypes=widths(op, ids))

"""verify_greedy: what every implementation must do (contract VGR)."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.request_state import RequestBatch, select_requests
from verispec.engines import Engine
from verispec.judge import OpUnderTest, assert_same
from verispec.suites.sampler import _ends
from verispec.suites.sampler._fused import REACH, many_logits, thousands_of_rows, verify
from verispec.suites.sampler._request_state import COUNTS, batch, layouts, widths
from verispec.suites.sampler.test_every_op import is_slow

VOCABS = [1, 2, 127, 1024, 8193, 20_000]


def greedy(seed: int, counts: str, vocab: int = 37, **options: object) -> RequestBatch:
    return batch(seed, counts, "absent", vocab, temperature=0.0, **options)


@case("VGR-1", counts=list(COUNTS), reach=REACH)
def test_accepted_while_argmax(op: OpUnderTest, seed: int, counts: str) -> None:
    verify(op, greedy(seed, counts))


@case("VGR-1", check="an accepted draft after a rejected one does not count", reach=REACH)
def test_the_first_rejection_ends_the_request(op: OpUnderTest, seed: int) -> None:
    requests = greedy(seed, "ragged")
    for b in range(requests.requests):
        for step in range(requests.drafts(b)):
            row = requests.row(b, step)
            requests.draft_sampled[row + 1] = requests.target_logits[row].argmax() if step else 0
            requests.target_logits[row, 0] = -9.0
    verify(op, requests)


@case("VGR-2", vocab=VOCABS[1:], reach="quantised logits tie")
def test_the_lowest_of_equal_maxima(op: OpUnderTest, seed: int, vocab: int) -> None:
    """Maxima in one block and across blocks; the drafts name the first and the last of them in turn."""
    requests = greedy(seed, "ragged", vocab)
    requests.target_logits[:] = -1.0
    requests.target_logits[:, [vocab // 3, vocab // 2, vocab - 1]] = 2.0
    requests.draft_sampled[:] = vocab // 3
    requests.draft_sampled[2::3] = vocab - 1
    verify(op, requests)


@case("VGR-3", counts=list(COUNTS), reach=REACH)
def test_the_bonus_token(op: OpUnderTest, seed: int, counts: str) -> None:
    """Every draft passes."""
    requests = greedy(seed, counts)
    requests.draft_sampled[1:] = requests.target_logits[:-1].argmax(axis=1)
    verify(op, requests)


@case("VGR-3", vocab=VOCABS, reach="vocabularies are no multiples of a tile")
def test_any_vocabulary(op: OpUnderTest, seed: int, vocab: int) -> None:
    verify(op, greedy(seed, "ragged", vocab))


@case("VGR-3", check=_ends.AT_ENDS, vocab=_ends.VOCABS, reach=_ends.REACH)
def test_an_id_at_an_end_is_the_argmax(op: OpUnderTest, seed: int, vocab: int) -> None:
    for requests in _ends.both_fates(seed, vocab, draft=False, temperature=0.0):
        verify(op, requests)


@case("VGR-3", check="a long request among short ones", vocab=151_936, reach=REACH)
def test_a_batch_of_many_logits(op: OpUnderTest, seed: int) -> None:
    verify(op, many_logits(seed, draft=False, temperature=0.0))


@case("VGR-4", columns=[0, 1, 5], reach="the buffer is as wide as the longest request of any batch")
def test_all_columns_are_written(op: OpUnderTest, seed: int, columns: int) -> None:
    requests = greedy(seed, "gaps")
    width = requests.columns + columns
    op.check_outputs(requests.arguments(op.contract), shapes={"sampled": (requests.requests, width)})


@case("VGR-5", counts=["ragged", "gaps", "none"], reach=REACH)
def test_counts(op: OpUnderTest, seed: int, counts: str) -> None:
    """Half of the requests accept all of their drafts, the others none."""
    requests = greedy(seed, counts)
    requests.draft_sampled[1:] = requests.target_logits[:-1].argmax(axis=1)
    for b in range(0, requests.requests, 2):
        if requests.drafts(b):
            requests.draft_sampled[requests.row(b, 1)] = -1
    verify(op, requests)


@case("VGR-6", counts=["ragged", "longest"], reach="the drafter continues from there")
def test_outputs_for_the_drafter(op: OpUnderTest, seed: int, counts: str) -> None:
    verify(op, greedy(seed, counts))


@case("VGR-7", rows=["some", "all", "first", "minus infinity"])
def test_nan_rows(op: OpUnderTest, seed: int, rows: str) -> None:
    requests = greedy(seed, "ragged", 300)
    requests.draft_sampled[1:] = np.where(np.arange(len(requests.draft_sampled) - 1) % 2, 0, 3)
    if rows == "minus infinity":
        requests.target_logits[:] = -np.inf
    else:
        at: Any = {"some": slice(None, None, 2), "all": slice(None), "first": 0}[rows]
        requests.target_logits[:, at] = np.nan
    verify(op, requests)


@case(
    "VGR-8",
    token=[-1, -5, 37, 2**31 - 1],
    reach=lambda p: "the scheduler pads drafts with -1" if p["token"] == -1 else None,
)
def test_padding_tokens(op: OpUnderTest, seed: int, token: int) -> None:
    """The argmax is any token, then the first or the last one: a clamped or a wrapped id is equal to it."""
    for argmax in (None, 0, -1):
        requests = greedy(seed, "ragged")
        requests.draft_sampled[:] = token
        if argmax is not None:
            requests.target_logits[:, argmax] = requests.target_logits.max() + 1
        verify(op, requests)


@case("VGR-9", padding=["first", "middle", "last"], reach="captured graphs pad the batch")
def test_padding_touches_nothing(op: OpUnderTest, seed: int, padding: str) -> None:
    at = {"first": [0], "middle": [1, 2], "last": [3]}[padding]
    verify(op, greedy(seed, "ragged", padding=at))


@case("VGR-10", dtype=["bfloat16", "float16"], reach="the language-model head's own dtype")
def test_narrow_logits(op: OpUnderTest, seed: int, dtype: str) -> None:
    """Many narrow logits are equal: the lowest id wins."""
    verify(op, greedy(seed, "ragged", 2_000), dtypes={"target_logits": dtype})


@case("VGR-10", check="neighbours", reach=REACH)
def test_adjacent_floats_differ(op: OpUnderTest, seed: int) -> None:
    requests = greedy(seed, "ragged", 300)
    requests.target_logits[:] = 7.0
    requests.target_logits[:, 211] = np.nextafter(np.float32(7.0), np.float32(8.0))
    requests.draft_sampled[:] = 211
    verify(op, requests)


@case("VGR-11", layout=["gapped", "padded", "transposed"])
def test_strides(op: OpUnderTest, seed: int, layout: str) -> None:
    verify(op, greedy(seed, "gaps", 300), layouts=layouts(op, layout))


@case("VGR-11", ids=["int32", "int64"])
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    verify(op, greedy(seed, "gaps"), dtypes=widths(op, ids))


@case("VGR-12", check="one by one and together", reach=REACH)
def test_requests_are_independent(op: OpUnderTest, seed: int) -> None:
    """A request alone is handled by all threads, one of many by a single one."""
    requests = greedy(seed, "ragged", 70_000)
    together = verify(op, requests)["sampled"]
    for b in range(requests.requests):
        alone = verify(op, select_requests(requests, [b]))["sampled"][0]
        assert_same(f"request {b} alone", together[b, : len(alone)].tolist(), alone.tolist())


@case("VGR-12", check="thousands of wide rows", reach=REACH)
def test_thousands_of_wide_rows(op: OpUnderTest, engine: Engine, seed: int) -> None:
    thousands_of_rows(op, seed, is_slow=is_slow(engine), temperature=0.0)

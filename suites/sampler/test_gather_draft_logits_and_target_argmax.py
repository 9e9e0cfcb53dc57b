"""Requirements of gather_draft_logits_and_target_argmax (contract GDL)."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.request_state import RequestBatch, random_requests
from verispec.engines import Engine
from verispec.judge import OpUnderTest
from verispec.suites.sampler import _ends
from verispec.suites.sampler._request_state import COUNTS, DRAFT, batch, drafted_reach, layouts, widths
from verispec.suites.sampler._sampling import gather_arguments
from verispec.suites.sampler.test_every_op import is_slow


def check(op: OpUnderTest, requests: RequestBatch, block: int = 16, **options: Any) -> None:
    values, shapes = gather_arguments(requests, op.contract, block)
    op.check_outputs(values, shapes=shapes, **options)


@case("GDL-1", counts=list(COUNTS), draft=DRAFT, block=[16, 37, 100], reach=drafted_reach)
def test_block_maxima_of_greedy_rows(op: OpUnderTest, seed: int, counts: str, draft: str, block: int) -> None:
    """Two blocks and a part of a third one."""
    check(op, batch(seed, counts, draft, 2 * block + 5, temperature=0.0), block)


@case("GDL-1", check="ties", reach="quantised logits tie")
def test_the_lowest_of_equal_maxima(op: OpUnderTest, seed: int) -> None:
    requests = batch(seed, "ragged", "absent", temperature=0.0)
    requests.target_logits[:] = np.round(requests.target_logits / 3)
    check(op, requests)


@case("GDL-1", check="ties", block=11)
def test_blocks_that_are_not_a_power_of_two(op: OpUnderTest, seed: int) -> None:
    requests = batch(seed, "ragged", "absent", temperature=0.0)
    requests.target_logits[:] = np.round(requests.target_logits / 3)
    check(op, requests, 11)


@case("GDL-1", check="equal rows", vocab=5000, reach="quantised logits tie")
def test_the_first_of_a_block_of_equal_logits(op: OpUnderTest, seed: int) -> None:
    """Blocks of one tile or of several, all of whose logits are equal."""
    requests = batch(seed, "one", "absent", 5000, temperature=0.0)
    requests.target_logits[:] = 0.0
    for block in (1024, 4096, 8192):
        check(op, requests, block)


@case("GDL-1", check="ties", vocab=20_000, reach="quantised logits tie")
def test_the_lowest_of_a_few_equal_maxima(op: OpUnderTest, seed: int) -> None:
    """Five maxima of each row at any ids, in blocks of one tile or of several: a later tile may hold the lower lane."""
    requests = batch(seed, "longest", "absent", 20_000, temperature=0.0)
    rng = np.random.default_rng(seed)
    for row in requests.target_logits:
        row[rng.integers(0, len(row), 5)] = 40.0
    for block in (1024, 4096, 8192):
        check(op, requests, block)


@case("GDL-1", check=_ends.AT_ENDS, vocab=_ends.VOCABS, reach=_ends.REACH)
def test_the_maximum_of_a_block_at_its_end(op: OpUnderTest, seed: int, vocab: int) -> None:
    """Blocks of one tile or of several, all of whose ids but one are impossible, or less likely than that one."""
    requests = _ends.end_requests(seed, vocab, draft=False, accepted=False, temperature=0.0)
    for block in (1024, 4096):
        check(op, requests, block)


@case("GDL-1", check="a thousand blocks and rows")
def test_many_blocks_of_the_last_rows(op: OpUnderTest, engine: Engine, seed: int) -> None:
    """The last requests alone are greedy, so that no row before them is written; there are as many rows as blocks."""
    requests = 12 if is_slow(engine) else 525
    made = random_requests(np.random.default_rng(seed), (1,) * requests, 2 * requests, draft=False, temperature=0.7)
    made.temperature[made.idx_mapping[-3:]] = 0.0
    check(op, made, 1)


@case("GDL-1", check="fewer columns than blocks", temperature=["0", "0.7"])
def test_blocks_without_a_column(op: OpUnderTest, seed: int, temperature: str) -> None:
    """Outputs with two columns for three blocks, and with 20 for 37 ids, keep what is behind each row."""
    requests = batch(seed, "ragged", temperature=float(temperature))
    values, shapes = gather_arguments(requests, op.contract)
    rows = len(requests.target_logits)
    fewer = {"local_max": (rows, 2), "local_argmax": (rows, 2), "gathered_draft_logits": (rows, 20)}
    op.check_outputs(values, shapes={**shapes, **fewer})


@case("GDL-1", dtype=["bfloat16", "float16"], check="tiny logits")
def test_tiny_logits_are_not_zero(op: OpUnderTest, seed: int, dtype: str) -> None:
    """Multiples of 2^-24, which float16 holds as subnormal numbers."""
    requests = batch(seed, "ragged", "absent", temperature=0.0)
    requests.target_logits[:] = np.round(requests.target_logits * 16) * np.float32(2.0**-24)
    check(op, requests, dtypes={"target_logits": dtype})


@case("GDL-2", counts=list(COUNTS), reach=drafted_reach)
def test_draft_logits_of_sampled_rows(op: OpUnderTest, seed: int, counts: str) -> None:
    check(op, batch(seed, counts, temperature=0.7))


@case("GDL-3", draft=DRAFT, reach="adaptive verification ends before the configured number of steps")
def test_the_bonus_row_of_a_short_request(op: OpUnderTest, seed: int, draft: str) -> None:
    check(op, batch(seed, "gaps", draft))


@case("GDL-3", counts=["one", "ragged", "gaps"], check="steps of padding")
def test_the_row_before_padding(op: OpUnderTest, seed: int, counts: str) -> None:
    """Rows of padding hold the steps of an earlier batch: their state alone says that they are padding."""
    for temperature in (0.0, 0.7):
        rng = np.random.default_rng(seed)
        requests = random_requests(rng, COUNTS[counts], 37, spare=5, temperature=temperature)
        requests.expanded_local_pos[requests.expanded_idx_mapping < 0] = 1 + np.arange(5) % 3
        check(op, requests)


@case("GDL-4", padding=["first", "middle", "last"], draft=DRAFT)
def test_padding_touches_nothing(op: OpUnderTest, seed: int, padding: str, draft: str) -> None:
    at = {"first": [0], "middle": [1, 2], "last": [3]}[padding]
    check(op, batch(seed, "ragged", draft, padding=at))


@case("GDL-5", target=[45, 200], temperature=["0", "0.7"], reach="MiMo v2.5 Pro with DFlash")
def test_a_target_wider_than_the_draft(op: OpUnderTest, seed: int, target: int, temperature: str) -> None:
    requests = batch(seed, "ragged", "present", target, draft_vocab=37, temperature=float(temperature))
    requests.target_logits[:, 37:] += 20.0
    check(op, requests)


@case("GDL-6", rows=["some", "all"])
def test_nan_rows(op: OpUnderTest, seed: int, rows: str) -> None:
    requests = batch(seed, "ragged", "absent", temperature=0.0)
    every = 2 if rows == "some" else 1
    requests.target_logits[:, ::every] = np.nan
    check(op, requests)


@case("GDL-7", layout=["gapped", "padded", "transposed"], draft=DRAFT)
def test_strides(op: OpUnderTest, seed: int, layout: str, draft: str) -> None:
    check(op, batch(seed, "gaps", draft), layouts=layouts(op, layout))


@case("GDL-7", ids=["int32", "int64"])
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    check(op, batch(seed, "gaps"), dtypes=widths(op, ids))


@case("GDL-8", dtype=["bfloat16", "float16"], reach="draft logits are kept in the model's dtype")
def test_values_are_copied(op: OpUnderTest, seed: int, dtype: str) -> None:
    names = ("target_logits", "draft_logits", "gathered_draft_logits")
    check(op, batch(seed, "ragged"), dtypes=dict.fromkeys(names, dtype))

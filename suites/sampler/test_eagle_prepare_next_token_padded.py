"""Requirements of eagle_prepare_next_token_padded (contract ENT)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.batches import Array
from verispec.cases.strategies import DrawnCall, explore, structures
from verispec.judge import OpUnderTest, assert_same
from verispec.reference import contracts
from verispec.suites.sampler._drafting import next_token_arguments as arguments
from verispec.suites.sampler._rejection import integers

CONTRACT = contracts.load("eagle_prepare_next_token_padded")
REACH = "every step of an EAGLE or draft-model drafter goes through this kernel"
VOCAB = 100


def sampled(rng: np.random.Generator, b: int, t: int) -> Array:
    """Return rows as verification writes them: some valid tokens, then -1."""
    rows = rng.integers(0, VOCAB, size=(b, t))
    valid = rng.integers(0, t + 1, size=b)
    rows[np.arange(t)[None, :] >= valid[:, None]] = -1
    return rows


def row_reach(params: Mapping[str, Any]) -> str | None:
    """Return the reach of rows that verification writes: no padding token comes before a token."""
    return None if params["row"] == "hole" else REACH


@case("ENT-1", t=[1, 2, 4, 8, 129], b=[1, 7, 257], reach=REACH)
def test_valid_tokens_are_counted(op: OpUnderTest, seed: int, t: int, b: int) -> None:
    op.check_outputs(arguments(sampled(np.random.default_rng(seed), b, t)))


@case("ENT-2", row=["full", "some", "first only", "zero id", "hole"], reach=row_reach)
def test_the_last_valid_token(op: OpUnderTest, row: str) -> None:
    """A hole is a padding token between valid tokens; the last valid token still wins."""
    rows = {
        "full": [3, 4, 5, 6],
        "some": [3, 4, -1, -1],
        "first only": [9, -1, -1, -1],
        "zero id": [7, 0, -1, -1],
        "hole": [3, -1, 5, -1],
    }
    op.check_outputs(arguments([[1, 2, -1, -1], rows[row]]))


@case("ENT-2", check="holes of any length")
def test_valid_tokens_behind_holes(op: OpUnderTest) -> None:
    """Holes of 1 to 8 padding tokens or ids past the vocabulary, of either kind or of both."""
    rows = [
        [3, *(invalid * hole)[:hole], 5, *[-1] * (9 - hole)]
        for hole in range(1, 9)
        for invalid in ([-1], [VOCAB], [-1, VOCAB])
    ]
    op.check_outputs(arguments(rows))


@case("ENT-3", b=[1, 3], reach="all sampled tokens of a request may be out of the vocabulary or discarded")
def test_a_row_without_valid_tokens_takes_the_backup(op: OpUnderTest, b: int) -> None:
    op.check_outputs(arguments([[1, -1, -1]] + [[-1, -1, -1]] * b))


@case("ENT-4", at=[0, 1, 2], reach="a prefill that is not finished is discarded")
def test_a_discarded_request_takes_the_backup(op: OpUnderTest, at: int) -> None:
    op.check_outputs(arguments([[1, 2, 3], [4, 5, -1], [-1, -1, -1]], discarded=np.arange(3) == at))


@case(
    "ENT-5",
    token=[VOCAB, VOCAB + 1, 2**31 - 1],
    reach=lambda p: "a padded vocabulary lets an id past its end be sampled" if p["token"] <= VOCAB + 1 else None,
)
def test_an_id_past_the_vocabulary_is_not_valid(op: OpUnderTest, token: int) -> None:
    op.check_outputs(arguments([[1, 2, token], [token, -1, -1], [VOCAB - 1, token, -1]]))


@case("ENT-6", token=[-2, -(2**31)])
def test_another_negative_id_is_not_valid(op: OpUnderTest, token: int) -> None:
    op.check_outputs(arguments([[1, token, -1], [token, -1, -1], [token, 5, -1]]))


@case("ENT-7", requests=["none", "fewer than rows"])
def test_rows_past_the_batch_are_left_alone(op: OpUnderTest, seed: int, requests: str) -> None:
    values = arguments(sampled(np.random.default_rng(seed), 5, 4))
    values["num_reqs"] = 0 if requests == "none" else 3
    rows = {"next_token_ids_ptr": (5,), "valid_sampled_tokens_count_ptr": (5,)}
    op.check_outputs(values, shapes=rows)


@case("ENT-8", check=["row stride", "fewer columns"], b=[5, 300])
def test_the_row_stride_and_the_columns_in_use(op: OpUnderTest, seed: int, check: str, b: int) -> None:
    values = arguments(sampled(np.random.default_rng(seed), b, 4))
    if check == "row stride":
        op.check_outputs(values, layouts={"sampled_token_ids_ptr": "padded"})
    else:
        op.check_outputs({**values, "num_sampled_tokens_per_req": 2, "BLOCK_SIZE_TOKENS": 2})


@case("ENT-9", ids=["int32", "int64", "mixed", "swapped"], reach=lambda p: REACH if p["ids"] == "int32" else None)
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    op.check_outputs(arguments(sampled(np.random.default_rng(seed), 5, 4)), dtypes=integers(CONTRACT, ids))


@case("ENT-10", layout=["gapped", "transposed"])
def test_inner_strides(op: OpUnderTest, seed: int, layout: str) -> None:
    layouts = dict.fromkeys((t.name for t in CONTRACT.tensors), layout)
    op.check_outputs(arguments(sampled(np.random.default_rng(seed), 5, 4)), layouts=layouts)


@case("ENT-1", mode="generated", reach=REACH)
def test_generated(op: OpUnderTest, seed: int) -> None:
    @explore(structures(CONTRACT, layouts=False, vocab=(1, 9), some_draft=True), 150, seed)
    def check(drawn: DrawnCall) -> None:
        rng = np.random.default_rng(drawn.seed)
        rows = sampled(rng, len(drawn.counts), drawn.vocab)
        op.check_outputs(arguments(rows, discarded=rng.random(len(rows)) < 0.3))


@case("ENT-2", relation="permuted", reach=REACH)
def test_a_permuted_batch_gives_permuted_tokens(op: OpUnderTest, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, backup, order = sampled(rng, 9, 5), rng.integers(0, VOCAB, size=9), rng.permutation(9)
    tokens = op.call_written(arguments(rows, backup=backup))["next_token_ids_ptr"]
    moved = op.call(arguments(rows[order], backup=backup[order]))[1]["next_token_ids_ptr"]
    assert_same("a permuted batch gives permuted tokens", tokens[order], moved)

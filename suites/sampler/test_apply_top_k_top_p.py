"""apply_top_k_top_p: what every implementation must do (contract TKP).

How many tokens top-p keeps is open only within the bound of TKP-9; which tokens they are never is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.request_state import Array, normal
from verispec.judge import OpUnderTest, same
from verispec.reference.oracle.apply_top_k_top_p import order, probabilities_before

REACH = "every request with top_k or top_p"
BOUND = 2.0**-18
VOCABULARIES = [1, 2, 37, 4097, 9001]
RULES = ["k", "p", "both"]


def arguments(seed: int, rule: str = "both", vocab: int = 300, rows: int = 4, spread: float = 3.0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "logits": normal(rng, rows, vocab) * np.float32(spread / 3),
        "k": rng.integers(1, max(vocab // 4, 2), rows) if rule != "p" else None,
        "p": rng.uniform(0.1, 0.97, rows) if rule != "k" else None,
    }


def within(expected: Array, got: Array, inputs: Mapping[str, Any]) -> Array:
    """Wrong elements; a row that keeps a few tokens more or less is right if their place is within the bound of p."""
    wrong: Array = (expected != got) & ~(np.isnan(expected) & np.isnan(got))
    for b in np.flatnonzero(wrong.any(axis=1)):
        if inputs["p"] is None:
            continue
        row = inputs["logits"][b]
        values = np.where(np.isnan(row), -np.inf, row).astype(np.float64)
        ids = order(row)
        if inputs["k"] is not None and 0 < inputs["k"][b] < len(row):
            ids = ids[: inputs["k"][b]]
        kept = int((got[b] > -np.inf).sum())
        masked = np.full(len(row), -np.inf, dtype=got.dtype)
        masked[ids[:kept]] = row[ids[:kept]]
        before = np.append(probabilities_before(values[ids]), 1.0)
        first, last = sorted((kept, int((expected[b] > -np.inf).sum())))
        if np.array_equal(masked, got[b]) and np.all(np.abs(before[first:last] - inputs["p"][b]) <= BOUND):
            wrong[b] = False
    return wrong


def check(op: OpUnderTest, values: dict[str, Any], **options: Any) -> Array:
    masked: Array = op.agrees(values, compare={"output": within}, **options)["output"]
    return masked


@case("TKP-1", rule=RULES, vocab=VOCABULARIES, reach=REACH)
def test_any_vocabulary(op: OpUnderTest, seed: int, rule: str, vocab: int) -> None:
    check(op, arguments(seed, rule, vocab))


@case("TKP-2", logits=["rounded", "all equal", "zeros of both signs"], vocab=[300, 9001], reach="vllm#50979")
def test_exactly_k_among_ties(op: OpUnderTest, seed: int, logits: str, vocab: int) -> None:
    values = arguments(seed, "k", vocab)
    row = values["logits"]
    row[:] = np.round(row) if logits == "rounded" else 0.0
    if logits == "zeros of both signs":
        row[:, ::2] = -0.0
    got = check(op, values)
    same("exactly k tokens are kept", values["k"], (got > -np.inf).sum(axis=1))


@case("TKP-3", rule=["p", "both"], spread=["0.5", "3", "12"], vocab=[300, 9001], reach=REACH)
def test_the_smallest_set_that_holds_p(op: OpUnderTest, seed: int, rule: str, spread: str, vocab: int) -> None:
    check(op, arguments(seed, rule, vocab, spread=float(spread)))


@case("TKP-3", check="ties at the threshold", vocab=[300, 9001], reach="quantised logits tie")
def test_top_p_among_ties(op: OpUnderTest, seed: int, vocab: int) -> None:
    values = arguments(seed, "p", vocab)
    values["logits"][:] = np.round(values["logits"])
    check(op, values)


@case("TKP-4", p=["0", "-1", "1e-9"], rule=["p", "both"], reach="top_p=0 is refused by most callers")
def test_the_first_token_stays(op: OpUnderTest, seed: int, p: str, rule: str) -> None:
    values = arguments(seed, rule)
    values["p"][:] = float(p)
    got = check(op, values)
    same("one token a row", np.ones(4), (got > -np.inf).sum(axis=1))


@case("TKP-5", limits=["no k", "no p", "neither", "mixed"], reach="requests with and without limits share a batch")
def test_rows_without_a_limit(op: OpUnderTest, seed: int, limits: str) -> None:
    values = arguments(seed, "both")
    if limits in {"no k", "neither"}:
        values["k"][:] = [300, 0, 301, -3]
    if limits in {"no p", "neither"}:
        values["p"][:] = [1.0, 1.0, 1.5, 2.0]
    if limits == "mixed":
        values["k"][::2], values["p"][1::2] = [300, 0], 1.0
    check(op, values)


@case("TKP-6", dtype=["float32", "bfloat16", "float16"], rule=RULES, reach=REACH)
def test_kept_logits_keep_their_bits(op: OpUnderTest, seed: int, dtype: str, rule: str) -> None:
    check(op, arguments(seed, rule), dtypes={"logits": dtype, "output": dtype})


@case("TKP-7", rule=RULES, finite=["none", "one", "fewer than k"], vocab=[300, 9001], reach="grammars mask logits")
def test_masked_rows(op: OpUnderTest, seed: int, rule: str, finite: str, vocab: int) -> None:
    values = arguments(seed, rule, vocab)
    values["logits"][:, {"none": 0, "one": 1, "fewer than k": 5}[finite] :] = -np.inf
    if values["k"] is not None:
        values["k"][:] = 50
    check(op, values)


@case("TKP-8", at=["logits", "p"], vocab=[300, 9001])
def test_nan(op: OpUnderTest, seed: int, at: str, vocab: int) -> None:
    values = arguments(seed, "both", vocab)
    values[at][..., 1::3] = np.nan
    check(op, values)


@case("TKP-9", vocab=9001, p=["0.5", "0.9", "0.999"], reach=REACH)
def test_flat_rows(op: OpUnderTest, seed: int, p: str) -> None:
    values = arguments(seed, "p", 9001, spread=0.1)
    values["p"][:] = float(p)
    check(op, values)


@case("TKP-10", check="the logits are read only", rule=RULES, reach="raw log-probabilities are taken later")
def test_out_of_place(op: OpUnderTest, seed: int, rule: str) -> None:
    """That no input changes is looked at in every case; here the output is a buffer of its own by its layout."""
    check(op, arguments(seed, rule), layouts={"output": "padded"})


@case("TKP-11", layout=["gapped", "padded", "transposed"], rule=RULES, reach="vllm#42779")
def test_strides(op: OpUnderTest, seed: int, layout: str, rule: str) -> None:
    names = ("logits", "output", "k", "p")
    check(op, arguments(seed, rule), layouts=dict.fromkeys(names, layout))


@case("TKP-11", ids=["int32", "int64"])
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    check(op, arguments(seed, "k"), dtypes={"k": ids})


@case("TKP-12", peak=["20", "60", "1000"], vocab=[300, 9001], reach="vllm#48927")
def test_peaked_rows(op: OpUnderTest, seed: int, peak: str, vocab: int) -> None:
    """One token has almost all the mass; the tail behind it is as steep."""
    values = arguments(seed, "both", vocab)
    values["logits"][:, vocab // 2] = float(peak)
    values["p"][:] = [0.3, 0.9, 0.9999, 0.999999]
    check(op, values)


@case("TKP-13", infinite=[1, 3], rule=RULES)
def test_positive_infinity(op: OpUnderTest, seed: int, infinite: int, rule: str) -> None:
    values = arguments(seed, rule)
    values["logits"][:, 10 : 10 + infinite] = np.inf
    check(op, values)


@case("TKP-2", relation="alone and in a batch", vocab=[300, 9001], reach="vllm#50979")
def test_a_row_alone_is_what_it_is_in_a_batch(op: OpUnderTest, seed: int, vocab: int) -> None:
    values = arguments(seed, "both", vocab, rows=5)
    together = check(op, values)
    for row in range(5):
        one = {name: value[row : row + 1] for name, value in values.items()}
        same("the row", together[row : row + 1], check(op, one))

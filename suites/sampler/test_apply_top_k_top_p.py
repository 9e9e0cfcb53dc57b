"""Requirements of apply_top_k_top_p (contract TKP).

TKP-9 bounds how many tokens top-p keeps; it never leaves open which tokens these are. Which of several equal logits
at the k-th place are kept is a note: engines keep all of them on purpose. A token above or below them is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from verispec.cases import case
from verispec.cases.request_state import Array
from verispec.cases.strategies import DrawnCall, explore, structures
from verispec.judge import Failure, Kind, Mismatch, OpUnderTest, assert_same, sparse_zeros
from verispec.reference import contracts
from verispec.reference.oracle.apply_top_k_top_p import order, probabilities_before
from verispec.run.record import FAULT
from verispec.suites.sampler import _ends
from verispec.suites.sampler._callers import of_vocabulary
from verispec.suites.sampler._fused import cluster, stripe
from verispec.suites.sampler._sampling import limit_arguments as arguments

CONTRACT = contracts.load("apply_top_k_top_p")
REACH = "every request with top_k or top_p"
TIES = "equal logits at the k-th place, which a bfloat16 head often gives (vllm#50979)"
SHARED = "requests with and without limits share a batch"
BOUND = 2.0**-18
INEXACT = 2.0**-10
"""A boundary that is off by less is imprecise, not wrong: fewer than one sample in a thousand differs."""
SHARE = 2.0**-6
"""It must also be off by less than this share of both the kept and the dropped probability."""
VOCABULARIES = [1, 2, 37, 2000, 4097, 9001]
LARGE = 151_936
RULES = ["k", "p", "both"]


def bfloat16_head(logits: Array) -> Array:
    """Round float32 logits like a bfloat16 output head: near 20 they are multiples of 1/8."""
    rounded: Array = torch.as_tensor(logits + 20).bfloat16().float().numpy()
    return rounded


def distinct(logits: Array) -> Array:
    """Return logits in the same order that stay distinct in every dtype: up to 200 quarters, from -7 on."""
    ranks: Array = logits.argsort(axis=1).argsort(axis=1)
    return ranks / 4 - 7


def boundary(expected: Array, got: Array, inputs: Mapping[str, Any], b: int) -> tuple[int, float] | None:
    """Return the error of top-p's boundary in row `b`: surplus tokens, and their probability.

    Return None if that does not describe the difference: other tokens than the first are kept, or there is no top-p.
    """
    # A p of 1 and above disables top-p, and NaN keeps one token: both leave nothing open.
    if inputs["p"] is None or not inputs["p"][b] < 1.0:
        return None
    row = inputs["logits"][b]
    ids = order(row)
    if inputs["k"] is not None and 0 < inputs["k"][b] < len(row):
        ids = ids[: inputs["k"][b]]
    kept, right = (int((answer[b] > -np.inf).sum()) for answer in (got, expected))
    masked = np.full(len(row), -np.inf, dtype=got.dtype)
    masked[ids[:kept]] = row[ids[:kept]]
    if kept == 0 or not np.array_equal(masked, got[b]):
        return None
    values = np.where(np.isnan(row), -np.inf, row).astype(np.float64)
    before = np.append(probabilities_before(values[ids]), 1.0)
    fewer, more = sorted((kept, right))
    return kept - right, float(np.abs(before[fewer:more] - inputs["p"][b]).max(initial=0.0))


TIED = "of the tokens that tie with the last kept one, too many are kept, or others than the first"


def tied(expected: Array, got: Array, inputs: Mapping[str, Any], wrong: Array) -> Failure | None:
    """Return the failure of a masking that errs only among the logits equal to the last kept one; None for another.

    A wrong number of first tokens under top-p is another fault, even among equal logits.
    """
    for b in map(int, np.flatnonzero(wrong.any(axis=1))):
        row, kept, held, at = inputs["logits"][b], expected[b] > -np.inf, got[b] > -np.inf, wrong[b]
        if not kept.any() or np.any(kept[at] == held[at]):
            return None
        edge = expected[b][kept].min()
        if np.any(row[at] != edge) or np.count_nonzero(row == edge) < 2:
            return None
        if boundary(expected, got, inputs, b) is not None:
            return None
    b = int(np.flatnonzero(wrong.any(axis=1))[0])
    right, count = (int((answer[b] > -np.inf).sum()) for answer in (expected, got))
    edge = f"those with the last kept logit, {expected[b][expected[b] > -np.inf].min():g}"
    if count == right:
        message = f"row {b} keeps {right:,} tokens, but not the first of {edge}"
    else:
        message = (
            f"row {b} keeps {count:,} tokens, expected {right:,}: too {'many' if count > right else 'few'} of {edge}"
        )
    signs = np.signbit(inputs["logits"][b][inputs["logits"][b] == 0])
    if expected[b][expected[b] > -np.inf].min() == 0 and signs.any() and not signs.all():
        message += "; zeros of both signs are equal"
    places = np.argwhere(wrong).tolist()
    examples = tuple(
        {"index": at, "expected": _shown(expected[tuple(at)]), "got": _shown(got[tuple(at)])} for at in places[:5]
    )
    return Failure(Kind.VALUE, message, "output", len(places), int(expected.size), examples, {FAULT: TIED})


def _shown(value: Any) -> float | str:
    """Return a logit as a JSON value."""
    return float(value) if np.isfinite(value) else str(float(value))


def within(expected: Array, got: Array, inputs: Mapping[str, Any]) -> Array:
    """Return a mask of wrong elements; TKP-9 allows top-p to keep slightly more or fewer tokens.

    Raises:
        Mismatch: of kind imprecise, if only the boundary of a row is off, by little, but beyond the bound; with a named
            fault, if only tokens of equal logits are wrong.
    """
    wrong: Array = (expected != got) | (np.signbit(expected) != np.signbit(got))
    inexact = []
    for b in map(int, np.flatnonzero(wrong.any(axis=1))):
        off = boundary(expected, got, inputs, b)
        if off is None or off[1] > max(BOUND, min(INEXACT, SHARE * inputs["p"][b], SHARE * (1 - inputs["p"][b]))):
            if failure := tied(expected, got, inputs, wrong):
                raise Mismatch(failure)
            return wrong
        if off[1] > BOUND:
            inexact.append((off, b))
        wrong[b] = False
    if inexact:
        (tokens, mass), b = max(inexact, key=lambda row: row[0][1])
        message = (
            f"row {b} keeps {abs(tokens)} token{'s' * (abs(tokens) != 1)} too {'many' if tokens > 0 else 'few'}: "
            f"the boundary of top-p is off by {mass:.1e} of the probability, and rounding explains {BOUND:.1e}"
        )
        at = _furthest(expected, got, inputs, b)
        example = {"index": at, "expected": _shown(expected[tuple(at)]), "got": _shown(got[tuple(at)])}
        raise Mismatch(Failure(Kind.IMPRECISE, message, "output", len(inexact), len(expected), (example,)))
    return wrong


def _furthest(expected: Array, got: Array, inputs: Mapping[str, Any], b: int) -> list[int]:
    """Return the wrong element of row `b` that is furthest from top-p's boundary, which no rounding excuses."""
    ids = order(inputs["logits"][b])
    fewer, more = sorted(int((answer[b] > -np.inf).sum()) for answer in (expected, got))
    too_few = int((got[b] > -np.inf).sum()) == fewer
    return [b, int(ids[fewer if too_few else more - 1])]


def check(op: OpUnderTest, values: dict[str, Any], **options: Any) -> Array:
    masked: Array = op.check_outputs(values, compare={"output": within}, **options)["output"]
    return masked


@case("TKP-1", rule=RULES, vocab=VOCABULARIES, reach=of_vocabulary)
def test_any_vocabulary(op: OpUnderTest, seed: int, rule: str, vocab: int) -> None:
    values = arguments(seed, rule, vocab)
    if rule == "p":
        values["logits"][-1] *= np.float32(0.3)  # flat, so that more than a thousand tokens of 2,000 are kept
        values["p"][-1] = 0.97
    check(op, values)


@case("TKP-1", check=_ends.AT_ENDS, vocab=_ends.VOCABS, rule=RULES, reach=_ends.REACH)
def test_an_id_at_an_end_is_kept(op: OpUnderTest, seed: int, vocab: int, rule: str) -> None:
    """It is the only possible token, or the likeliest one; then k keeps it alone, and leaves out it alone."""
    values = arguments(seed, rule, vocab, rows=max(len(_ends.end_ids(vocab)), 4))
    chosen = _ends.leave_ends(values["logits"])
    check(op, values)
    if rule == "k":
        for logit, k in ((60.0, 1), (-60.0, vocab - 1)):
            values = arguments(seed, rule, vocab, rows=len(chosen))
            values["logits"][np.arange(len(chosen)), chosen] = logit
            values["k"][:] = k
            check(op, values)


@case("TKP-1", rule=RULES, vocab=LARGE, spread=["0.1", "3"], size="large", reach=REACH)
def test_a_production_vocabulary(op: OpUnderTest, seed: int, rule: str, spread: str) -> None:
    check(op, arguments(seed, rule, LARGE, rows=2, spread=float(spread)))


@case("TKP-2", k=[1, 2, 299], rule=["k", "both"], reach=REACH)
def test_the_first_and_all_but_the_last(op: OpUnderTest, seed: int, k: int, rule: str) -> None:
    values = arguments(seed, rule)
    values["k"][:] = k
    check(op, values)


def tied_arguments(seed: int, k: str, vocab: int) -> dict[str, Any]:
    """Return logits of a bfloat16 head; with a k of 1, two of them share the first place."""
    values = arguments(seed, "k", vocab)
    values["logits"] = bfloat16_head(values["logits"])
    if k == "1":
        values["k"][:] = 1
        values["logits"][:, [vocab // 3, vocab // 2]] = values["logits"].max() + 1
    return values


@case("TKP-2", check="ties", logits=["bfloat16", "all equal"], k=["1", "random"], vocab=[300, 9001], reach=TIES)
def test_ties_leave_k_tokens_and_what_is_above_them(
    op: OpUnderTest, seed: int, logits: str, k: str, vocab: int
) -> None:
    """Whatever is kept of the logits that equal the k-th, larger ones are kept, and smaller ones are not."""
    values = tied_arguments(seed, k, vocab)
    if logits == "all equal":
        values["logits"][:] = 0.0
    check_around_ties(op, values)


@case("TKP-2", check="ties", logits="all equal", k=66_000, vocab=70_000, reach=TIES)
def test_ties_past_16_bits_leave_k_tokens(op: OpUnderTest, seed: int) -> None:
    values = arguments(seed, "k", 70_000, rows=1)
    values["logits"][:] = 0.0
    values["k"][:] = 66_000
    check_around_ties(op, values)


def check_around_ties(op: OpUnderTest, values: dict[str, Any]) -> None:
    held = op.call(values)[1]["output"] > -np.inf
    rows = values["logits"]
    edge = np.stack([np.sort(row)[-k] for row, k in zip(rows, values["k"], strict=True)])[:, None]
    assert_same("logits above the k-th largest that are kept", rows > edge, held & (rows > edge))
    assert_same("logits below the k-th largest that are kept", np.zeros_like(held), held & (rows < edge))
    assert_same("rows that keep at least k tokens", np.ones(len(rows), bool), held.sum(axis=1) >= values["k"])


@case("TKP-2", logits="bfloat16", k=["1", "random"], vocab=[300, 9001])
def test_exactly_k_among_ties(op: OpUnderTest, seed: int, k: str, vocab: int) -> None:
    values = tied_arguments(seed, k, vocab)
    got = check(op, values)
    assert_same("exactly k tokens are kept", values["k"], (got > -np.inf).sum(axis=1))


@case("TKP-2", logits=["all equal", "zeros of both signs"], vocab=[300, 9001])
def test_exactly_k_of_equal_logits(op: OpUnderTest, seed: int, logits: str, vocab: int) -> None:
    values = arguments(seed, "k", vocab, rows=70 if (logits, vocab) == ("all equal", 300) else 4)
    values["logits"][:] = 0.0
    if logits == "zeros of both signs":
        values["logits"][:, ::2] = -0.0
    got = check(op, values)
    assert_same("exactly k tokens are kept", values["k"], (got > -np.inf).sum(axis=1))


@case("TKP-2", logits="all equal", k="all but one", vocab=[1025, 2049, 4097, 8193])
def test_all_but_one_of_equal_logits(op: OpUnderTest, seed: int, vocab: int) -> None:
    """The token to drop is the first one past a power of two: a search by windows has it alone in the last one."""
    values = arguments(seed, "k", vocab)
    values["logits"][:] = 0.0
    values["k"][:] = vocab - 1
    got = check(op, values)
    assert_same("exactly k tokens are kept", values["k"], (got > -np.inf).sum(axis=1))


@case("TKP-3", rule=["p", "both"], spread=["0.5", "3", "12"], vocab=[300, 9001], reach=REACH)
def test_the_smallest_set_that_holds_p(op: OpUnderTest, seed: int, rule: str, spread: str, vocab: int) -> None:
    check(op, arguments(seed, rule, vocab, spread=float(spread)))


@case("TKP-3", rule="both", rows=70, vocab=4500, reach=REACH)
def test_limits_of_many_wide_rows(op: OpUnderTest, seed: int) -> None:
    check(op, arguments(seed, "both", 4500, rows=70))


@case("TKP-3", check="ties at the threshold", vocab=[300, 9001])
def test_top_p_among_ties(op: OpUnderTest, seed: int, vocab: int) -> None:
    values = arguments(seed, "p", vocab, spread=1.0)
    values["logits"] = bfloat16_head(values["logits"])
    check(op, values)


@case("TKP-3", check="all but one of equal logits", rule=["p", "both"], vocab=[4097, 8193])
def test_top_p_of_all_but_one_of_equal_logits(op: OpUnderTest, seed: int, rule: str, vocab: int) -> None:
    """The token to drop is the first one past a power of two. Of the first k tokens, top-p keeps all."""
    values = arguments(seed, rule, vocab)
    values["logits"][:] = 0.0
    if rule == "both":
        values["k"][:] = vocab - 1
    values["p"][:] = 1 - (1.5 if rule == "p" else 0.5) / vocab
    check(op, values)


@case("TKP-3", check="more equal logits than 16 bits count", rule=RULES)
def test_very_many_ties(op: OpUnderTest, seed: int, rule: str) -> None:
    """A row that a mask makes flat has so many; which of them an engine keeps is a matter of the contract."""
    values = arguments(seed, rule, 70_000, rows=2)
    values["logits"][:] = 0.0
    if rule != "p":
        values["k"][:] = 66_000
    if rule != "k":
        values["p"][:] = 0.96
    check(op, values)


@case("TKP-3", spread=["striped", "clustered"], vocab=20_011, rule=RULES, reach=REACH)
def test_limits_of_uneven_rows(op: OpUnderTest, seed: int, spread: str, rule: str) -> None:
    """A sample of evenly spread places misjudges striped rows, so that a guess from one is wrong.

    Clustered ones have their likely tokens next to each other; a limit of both keeps some of these.
    """
    values = arguments(seed, rule, 20_011)
    if spread == "striped":
        values["logits"] = stripe(values["logits"])
    else:
        values["logits"] = cluster(np.random.default_rng(seed), values["logits"])
    if values["k"] is not None:
        values["k"][:] = [5000, 5000, 9000, 9000] if spread == "striped" else [20, 40, 400, 5000]
    if values["p"] is not None:
        values["p"][:] = 0.5 if spread == "striped" else [0.5, 0.8, 0.95, 0.99]
    check(op, values)


@case("TKP-3", spread="stepped", vocab=20_011, rule=RULES, reach=REACH)
def test_limits_just_past_a_step(op: OpUnderTest, seed: int, rule: str) -> None:
    """Half of a row's tokens weigh nearly the same, the others a third; a limit keeps 4 to 200 of these.

    An interval for the threshold, guessed from a sample, then holds tokens of the lower step alone.
    """
    values = arguments(seed, rule, 20_011)
    rng = np.random.default_rng(seed)
    high = rng.random(values["logits"].shape) < 0.5
    values["logits"] = (values["logits"] * np.float32(0.004) - np.where(high, 0.0, 1.1)).astype(np.float32)
    count, more = high.sum(axis=1), np.array([4, 15, 60, 200])
    if values["k"] is not None:
        values["k"][:] = count + (more if rule == "k" else 3000)
    if values["p"] is not None:
        weights = np.exp(np.sort(values["logits"].astype(np.float64), axis=1)[:, ::-1])
        if rule == "both":
            weights[np.arange(20_011) >= values["k"][:, None]] = 0.0
        values["p"][:] = np.cumsum(weights, axis=1)[np.arange(4), count + more] / weights.sum(axis=1)
    check(op, values)


@case(
    "TKP-4",
    p=["1e-3", "1e-9", "0", "-1"],
    rule=["p", "both"],
    reach=lambda params: "top_p may be as small as a caller likes" if params["p"].startswith("1e") else None,
)
def test_the_first_token_stays(op: OpUnderTest, seed: int, p: str, rule: str) -> None:
    values = arguments(seed, rule)
    values["p"][:] = float(p)
    got = check(op, values)
    assert_same("one token a row", np.ones(4), (got > -np.inf).sum(axis=1))


@case("TKP-5", limits=["no k", "no p", "neither", "mixed"], vocab=[300, 9001], reach=SHARED)
def test_rows_without_a_limit(op: OpUnderTest, seed: int, limits: str, vocab: int) -> None:
    """Limits of V and 1, which batches use for requests without a limit.

    In every second row one token's probability rounds to 1 in float32, yet the others are kept.
    """
    values = arguments(seed, "both", vocab)
    values["logits"][1::2, vocab // 2] = 50.0
    if limits in {"no k", "neither"}:
        values["k"][:] = vocab
    if limits in {"no p", "neither"}:
        values["p"][:] = 1.0
    if limits == "mixed":
        values["k"][::2], values["p"][1::2] = vocab, 1.0
    check(op, values)


@case("TKP-5", k=[0, 301, -3], rule=["k", "both"])
def test_a_k_outside_the_vocabulary(op: OpUnderTest, seed: int, k: int, rule: str) -> None:
    values = arguments(seed, rule)
    values["k"][1::2] = k
    check(op, values)


@case("TKP-5", p=["1.5", "2"], rule=["p", "both"])
def test_a_p_above_one(op: OpUnderTest, seed: int, p: str, rule: str) -> None:
    values = arguments(seed, rule)
    values["p"][1::2] = float(p)
    check(op, values)


@case(
    "TKP-6",
    dtype=["float32", "bfloat16", "float16"],
    rule=RULES,
    reach=lambda params: REACH if params["dtype"] == "float32" else None,
)
def test_kept_logits_keep_their_bits(op: OpUnderTest, seed: int, dtype: str, rule: str) -> None:
    values = arguments(seed, rule, vocab=200)
    if dtype != "float32":
        values["logits"] = distinct(values["logits"])
    check(op, values, dtypes={"logits": dtype, "output": dtype})


FINITE = {"none": 0, "one": 1, "fewer than k": 5, "all but a padded end": 256}


def mask_reach(params: Mapping[str, Any]) -> str | None:
    """Return the reach of masked rows; a grammar leaves at least the end of the text."""
    return None if params["finite"] == "none" else "grammars mask logits, and padding of heads"


@case("TKP-7", rule=RULES, finite=list(FINITE), vocab=[300, 9001], reach=mask_reach)
def test_masked_rows(op: OpUnderTest, seed: int, rule: str, finite: str, vocab: int) -> None:
    values = arguments(seed, rule, vocab)
    values["logits"][:, FINITE[finite] :] = -np.inf
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
    """Top-p alone, and of the first k tokens, many as likely as these behind them."""
    values = arguments(seed, "p", 9001, spread=0.1)
    values["p"][:] = float(p)
    check(op, values)
    check(op, values | {"k": np.array([20, 50, 64, 3000])})


@case("TKP-10", check="out of place", rule=RULES, reach="raw log-probabilities are taken later")
def test_out_of_place(op: OpUnderTest, seed: int, rule: str) -> None:
    """Every case checks that inputs stay unchanged; here the output has its own buffer and layout."""
    check(op, arguments(seed, rule), layouts={"output": "padded"})


@case("TKP-10", check="in place", rule=RULES, vocab=[300, 9001], reach="samplers mask a batch's logits in place")
def test_in_place(op: OpUnderTest, seed: int, rule: str, vocab: int) -> None:
    values = arguments(seed, rule, vocab)
    apart = check(op, values)
    logits = torch.tensor(values["logits"], device=op.device)
    op.run(values, output=logits, logits=logits)
    assert_same("the logits, masked in place", apart, logits.cpu().numpy())


@case("TKP-11", layout=["gapped", "transposed"], rule=RULES)
def test_strides(op: OpUnderTest, seed: int, layout: str, rule: str) -> None:
    check(op, arguments(seed, rule), layouts=dict.fromkeys(("logits", "output", "k", "p"), layout))


@case("TKP-11", layout="padded", rule=RULES, vocab=[300, 9001], reach="padded heads (vllm#42779)")
def test_a_padded_vocabulary(op: OpUnderTest, seed: int, rule: str, vocab: int) -> None:
    """The logits are the first columns of wider rows with arbitrary contents after them."""
    check(op, arguments(seed, rule, vocab), layouts={"logits": "padded", "output": "padded"})


@case("TKP-11", ids=["int32", "int64"], reach=lambda params: REACH if params["ids"] == "int32" else None)
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    check(op, arguments(seed, "k"), dtypes={"k": ids})


@case("TKP-11", ids="int64", k="past 2^32", rule=["k", "both"])
def test_a_wide_k_is_not_cut(op: OpUnderTest, seed: int, rule: str) -> None:
    """The lower 32 bits of some k are 3, those of others are 0 or negative: all of them keep every token."""
    values = arguments(seed, rule, rows=8)
    values["k"] = values["k"].astype(np.int64)
    values["k"][::2] = [2**32 + 3, 2**31, 2**32, 2**40 + 2**31 + 1]
    check(op, values, dtypes={"k": "int64"})


@case("TKP-11", rule=RULES, size="large", reach="14,135 tokens to verify over a vocabulary of 151,936")
def test_rows_past_2_to_the_31(op: OpUnderTest, seed: int, rule: str) -> None:
    """The first, the middle and the last row of such a batch; a 32-bit offset misses the last one."""
    values = arguments(seed, rule, LARGE, rows=3)
    near = check(op, values)
    # As of a dense batch: the stride fits in 32 bits, and twice the stride does not.
    step = 2**30 // LARGE + 1
    logits, output = (sparse_zeros(2 * step + 1, LARGE, torch.float32, op.device)[::step] for _ in range(2))
    logits.copy_(torch.as_tensor(values["logits"]))
    op.run(values, output=output, logits=logits)
    assert_same("wrong logits", np.zeros((3, LARGE), bool), within(near, output.cpu().numpy(), values))


@case("TKP-12", peak=["20", "60", "1000"], vocab=[300, 9001], reach="vllm#48927")
def test_peaked_rows(op: OpUnderTest, seed: int, peak: str, vocab: int) -> None:
    """One token has almost all probability; the tail after it is as steep."""
    values = arguments(seed, "both", vocab)
    values["logits"][:, vocab // 2] = float(peak)
    values["p"][:] = [0.3, 0.9, 0.9999, 0.999999]
    check(op, values)


@case("TKP-13", infinite=[1, 3], rule=RULES)
def test_positive_infinity(op: OpUnderTest, seed: int, infinite: int, rule: str) -> None:
    values = arguments(seed, rule)
    values["logits"][:, 10 : 10 + infinite] = np.inf
    check(op, values)


@case(
    "TKP-14",
    rule=RULES,
    reach=lambda params: (
        "a step in which nothing was drafted, such as a prefill, of sampled requests with a "
        + {"k": "top-k and no top-p", "p": "top-p and no top-k", "both": "top-k and a top-p"}[params["rule"]]
    ),
)
def test_no_rows(op: OpUnderTest, seed: int, rule: str) -> None:
    check(op, arguments(seed, rule, rows=0))


@case("TKP-3", mode="generated", rule=RULES, reach=REACH)
def test_generated_rows(op: OpUnderTest, seed: int, rule: str) -> None:
    @explore(structures(CONTRACT, most_requests=2, layouts=False), 25, seed)
    def check_drawn(drawn: DrawnCall) -> None:
        check(op, arguments(drawn.seed, rule, drawn.vocab, rows=1 + len(drawn.counts)))


@case("TKP-11", mode="generated", rule=RULES)
def test_generated_dtypes_and_layouts(op: OpUnderTest, seed: int, rule: str) -> None:
    @explore(structures(CONTRACT, most_requests=2, same=(("output", "logits"),)), 25, seed)
    def check_drawn(drawn: DrawnCall) -> None:
        values = arguments(drawn.seed, rule, drawn.vocab, rows=1 + len(drawn.counts))
        values["logits"] = distinct(values["logits"])
        check(op, values, dtypes=drawn.dtypes, layouts=drawn.layouts)


@case("TKP-2", relation="alone and in a batch", vocab=[300, 9001])
def test_a_row_alone_is_what_it_is_in_a_batch(op: OpUnderTest, seed: int, vocab: int) -> None:
    values = arguments(seed, "k", vocab, rows=5)
    values["logits"] = bfloat16_head(values["logits"])
    together = op.call_written(values)["output"]
    for row in range(5):
        one = {name: None if value is None else value[row : row + 1] for name, value in values.items()}
        assert_same("the row", together[row : row + 1], op.call(one)[1]["output"])

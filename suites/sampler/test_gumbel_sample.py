"""gumbel_sample: what every implementation must do (contract GUM)."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.request_state import normal
from verispec.judge import OpUnderTest, same
from verispec.suites.sampler._request_state import layouts, widths

REACH = "every token that the GPU model runner samples or drafts"
DRAWS = ["target", "draft"]


def arguments(seed: int, draw: str = "target", vocab: int = 37, rows: int = 6, **changes: Any) -> dict[str, Any]:
    """Rows over more states than rows, in no order; temperatures with greedy ones."""
    rng = np.random.default_rng(seed)
    states = rows + 3
    return {
        "logits": normal(rng, rows, vocab),
        "expanded_idx_mapping": rng.permutation(states)[:rows],
        "temperature": rng.choice([0.0, 0.5, 1.0, 1.7], states),
        "seed": rng.integers(-(2**63), 2**63 - 1, states),
        "pos": rng.integers(0, 2**40, rows),
        "apply_temperature": True,
        "is_drafting": draw == "draft",
        "logits_cache": None,
        "logits_cache_col": None,
        **changes,
    }


def cached(values: dict[str, Any], seed: int) -> dict[str, Any]:
    """With a cache of three steps, wider than the vocabulary."""
    rng = np.random.default_rng(seed)
    rows, vocab = values["logits"].shape
    cache = normal(rng, len(values["temperature"]), 3, vocab + 5)
    return values | {"logits_cache": cache, "logits_cache_col": rng.integers(0, 3, rows)}


@case("GUM-1", draw=DRAWS, vocab=[1, 2, 37, 1025, 8193], reach=REACH)
def test_the_winner_of_the_race(op: OpUnderTest, seed: int, draw: str, vocab: int) -> None:
    values = arguments(seed, draw, vocab)
    values["temperature"][:] = 0.7
    op.agrees(values)


@case("GUM-1", check="logits that carry the temperature", reach=REACH)
def test_temperature_is_not_applied_twice(op: OpUnderTest, seed: int) -> None:
    op.agrees(arguments(seed, apply_temperature=False))


@case("GUM-2", draw=DRAWS, vocab=[37, 8193], reach=REACH)
def test_greedy_rows(op: OpUnderTest, seed: int, draw: str, vocab: int) -> None:
    op.agrees(arguments(seed, draw, vocab, temperature=np.zeros(9)))


@case("GUM-3", vocab=[37, 1024, 8193], reach="quantised logits tie")
def test_the_lowest_of_equal_logits(op: OpUnderTest, seed: int, vocab: int) -> None:
    values = arguments(seed, vocab=vocab, temperature=np.zeros(9))
    values["logits"][:] = 0.0
    values["logits"][:, [vocab // 2, vocab - 1]] = 1.0
    op.agrees(values)


@case("GUM-4", check="a draft and a target token differ", reach="vllm#54282")
def test_drafts_have_numbers_of_their_own(op: OpUnderTest, seed: int) -> None:
    """Flat rows over many tokens: shared noise would give the same token."""
    values = arguments(seed, vocab=20_000, rows=8)
    values["logits"][:] = 0.0
    values["temperature"][:] = 1.0
    target = op.agrees(values)["sampled"]
    draft = op.agrees(values | {"is_drafting": True})["sampled"]
    later = op.agrees(values | {"is_drafting": True, "logits_cache_col": np.ones(8)})["sampled"]
    same("at least 7 of 8 drafts differ from the target's tokens", True, int((target != draft).sum()) >= 7)
    same("at least 7 of 8 drafts of another step differ", True, int((later != draft).sum()) >= 7)


@case("GUM-5", draw=DRAWS, reach="draft_sample_method=probabilistic")
def test_the_cache_holds_the_logits_before_temperature(op: OpUnderTest, seed: int, draw: str) -> None:
    op.agrees(cached(arguments(seed, draw), seed))


@case("GUM-5", dtype=["bfloat16", "float16"], reach="draft logits are kept in the model's dtype")
def test_a_narrow_cache(op: OpUnderTest, seed: int, dtype: str) -> None:
    op.agrees(cached(arguments(seed, "draft"), seed), dtypes={"logits": dtype, "logits_cache": dtype})


@case("GUM-6", padding=["first", "last"], reach="captured graphs pad the batch")
def test_padding_touches_nothing(op: OpUnderTest, seed: int, padding: str) -> None:
    values = cached(arguments(seed, "draft"), seed)
    values["expanded_idx_mapping"][[0, 1] if padding == "first" else [-1]] = -1
    op.agrees(values)


@case("GUM-7", rows=["some", "all", "masked"], vocab=[37, 8193])
def test_hostile_rows(op: OpUnderTest, seed: int, rows: str, vocab: int) -> None:
    values = arguments(seed, vocab=vocab)
    if rows == "masked":
        values["logits"][:] = -np.inf
    else:
        values["logits"][:, :: 2 if rows == "some" else 1] = np.nan
    op.agrees(values)


@case("GUM-8", dtype=["bfloat16", "float16"], draw=DRAWS, reach="the language-model head's own dtype")
def test_narrow_logits(op: OpUnderTest, seed: int, dtype: str, draw: str) -> None:
    op.agrees(arguments(seed, draw), dtypes={"logits": dtype})


@case("GUM-9", layout=["gapped", "padded", "transposed"])
def test_strides(op: OpUnderTest, seed: int, layout: str) -> None:
    op.agrees(cached(arguments(seed, "draft"), seed), layouts=layouts(op, layout))


@case("GUM-9", ids=["int32", "int64"])
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    values = cached(arguments(seed, "draft"), seed)
    values["pos"] %= 2**31
    op.agrees(values, dtypes=widths(op, ids))


@case("GUM-10", relation="permuted", reach=REACH)
def test_a_row_alone_is_what_it_is_in_a_batch(op: OpUnderTest, seed: int) -> None:
    values = arguments(seed, rows=6)
    together = op.agrees(values)["sampled"]
    for row in range(6):
        one = {name: values[name][row : row + 1] for name in ("logits", "expanded_idx_mapping", "pos")}
        same("the row's token", together[row : row + 1], op.agrees(values | one)["sampled"])

"""The fused kernels on rows that are wide enough to be sampled: as the oracle, on every instruction set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_instruction_sets import assert_as_the_oracle

from verispec.cases.request_state import random_requests
from verispec.reference import cpu

VOCAB = 32_845
"""Sub-blocks 8, 24, 40 and so on of 256 are sampled; the last 77 logits are in none."""
P = (0.9003, 0.8003, 0.5, 0.7003, 1e-9, 0.8503, 0.999, 0.7503, 0.0, 0.3)
"""No multiple of 1 / VOCAB, so that rounding decides on no token of equal ones."""
Rows = np.ndarray[Any, Any]

ROWS: dict[str, Callable[[np.random.Generator, Rows], Rows]] = {
    "flat": lambda rng, x: x * 0.3,
    "nearly equal": lambda rng, x: x * 1e-3,
    "steep": lambda rng, x: x * 3,
    "ties": lambda rng, x: np.round(x),
    "ties of a few": lambda rng, x: np.round(x * 0.2),
    "two levels": lambda rng, x: np.where(rng.random(x.shape) < 0.1, 0.0, -3.0),
    "equal": lambda rng, x: np.full_like(x, 2.0),
    "subnormal": lambda rng, x: x * 1e-39,
    "masked": lambda rng, x: np.where(rng.random(x.shape) < 0.9, -np.inf, x),
    "NaN": lambda rng, x: np.where(rng.random(x.shape) < 0.3, np.nan, x),
    "some infinite": lambda rng, x: np.where(rng.random(x.shape) < 1e-3, np.inf, x),
    "falling": lambda rng, x: x * 0.3 - np.arange(x.shape[1]) / 2000,
    "one large": lambda rng, x: np.where(np.arange(x.shape[1]) == 20_001, 11.0, x * 0.3),
    # The second one seems heavy beside the sample, but the first one alone is what most of P keep.
    "two large": lambda rng, x: np.where(
        np.arange(x.shape[1]) == 20_001, 11.0, np.where(np.arange(x.shape[1]) == 20_002, 8.0, x * 3 - 40)
    ),
}


@pytest.mark.parametrize("op", ["verify_one_hot", "verify_draft_logits"])
@pytest.mark.parametrize("kind", ROWS)
def test_rows_of_every_kind(kind: str, op: str, instruction_sets: list[str]) -> None:
    rng = np.random.default_rng(sorted(ROWS).index(kind))
    batch = random_requests(rng, [1] * 12, VOCAB, temperature=1.0)
    batch.target_logits[:] = ROWS[kind](rng, batch.target_logits).astype(np.float32)
    # A quarter of the drafts each: a random token, the largest logit, the second one, and one that is close to them.
    best = np.argsort(np.nan_to_num(batch.target_logits, nan=-np.inf), axis=1)[:, [-1, -2, -200]]
    for row in range(len(best) - 1):
        if row // 2 % 4:
            batch.draft_sampled[row + 1] = best[row, row // 2 % 4 - 1]
    limits = {"top_p": np.resize(P, len(batch.temperature))}
    for name in instruction_sets:
        cpu._kernels.use_instruction_set(name)
        assert_as_the_oracle(op, batch, limits)


@pytest.mark.parametrize("op", ["verify_one_hot", "verify_draft_logits"])
@pytest.mark.parametrize("lift", [12.0, 2.0, -2.0, -12.0, -np.inf])
def test_rows_that_differ_where_they_are_sampled(lift: float, op: str) -> None:
    """Estimates from one in sixteen sub-blocks are far from the rest, on either side."""
    batch = random_requests(np.random.default_rng(3), [2] * 6, VOCAB, temperature=1.0)
    rows = np.random.default_rng(4).normal(size=batch.target_logits.shape)
    batch.target_logits[:] = np.where(np.arange(VOCAB) // 128 % 16 == 8, rows + lift, rows)
    assert_as_the_oracle(op, batch, {"top_p": np.resize([0.5, 0.9, 0.999], len(batch.temperature))})


def test_ties_at_the_limit_of_top_k_and_then_top_p() -> None:
    """Top-k keeps the equal logits with the lowest ids, and top-p, which drops none of these, brings no other back."""
    batch = random_requests(np.random.default_rng(5), [1] * 6, VOCAB, draft=False, temperature=1.0)
    batch.target_logits[:] = np.round(batch.target_logits * 0.1)
    # The last of the largest logits, of which there are more than k.
    last = VOCAB - 1 - np.argmax(batch.target_logits[:, ::-1], axis=1)
    batch.draft_sampled[1:] = last[:-1]
    states = len(batch.temperature)
    limits = {"top_k": np.resize([1, 3, 40], states), "top_p": np.full(states, 0.97)}
    assert_as_the_oracle("verify_one_hot", batch, limits)


def test_the_last_of_equal_tokens_that_top_p_keeps() -> None:
    """Half of 32,845 equal tokens are the first 16,423: the last of these is accepted, and the next one is not."""
    batch = random_requests(np.random.default_rng(6), [1] * 6, VOCAB, temperature=1.0)
    batch.target_logits[:] = 2.0
    assert batch.draft_logits is not None
    batch.draft_logits[:] = 0.0
    batch.draft_sampled[1::2] = np.resize([16_422, 16_423], 6)
    assert_as_the_oracle("verify_draft_logits", batch, {"top_p": np.full(len(batch.temperature), 0.5)})

"""Top-p's boundary: inside rounding it is right, a little beyond it is inexact, further it is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from verispec.judge import Kind, Mismatch
from verispec.reference.oracle.apply_top_k_top_p import apply_top_k_top_p, order, probabilities_before
from verispec.suites.sampler.test_apply_top_k_top_p import BOUND, INEXACT, within

ROW = np.linspace(0.0, 1.0, 20_001, dtype=np.float32)[None]


def judged(tokens: int, p: float = 0.5) -> Any:
    """Return the failure of an output that keeps `tokens` more of the order than the oracle."""
    inputs = {"output": np.zeros_like(ROW), "logits": ROW, "k": None, "p": np.array([p], np.float32)}
    expected = apply_top_k_top_p(**inputs)["output"]
    ids = order(ROW[0])[: int((expected > -np.inf).sum()) + tokens]
    got = np.full_like(expected, -np.inf)
    got[0, ids] = ROW[0, ids]
    return within(expected, got, inputs)


@pytest.mark.parametrize(("beside", "tokens"), [(-BOUND / 2, +1), (BOUND / 2, -1)])
def test_inside_rounding_either_answer_is_right(beside: float, tokens: int) -> None:
    """With p just below the probability before a token the oracle leaves it out, with p just above it keeps it."""
    before = probabilities_before(np.sort(ROW[0].astype(np.float64))[::-1])

    assert not judged(tokens, float(before[10_000]) + beside).any()


@pytest.mark.parametrize(("tokens", "words"), [(3, "3 tokens too many"), (-3, "3 tokens too few")])
def test_a_little_beyond_is_inexact(tokens: int, words: str) -> None:
    with pytest.raises(Mismatch, match=words) as caught:
        judged(tokens)

    assert caught.value.failure.kind is Kind.IMPRECISE
    assert f"{BOUND:.1e}" in caught.value.failure.message


@pytest.mark.parametrize("tokens", [3, -3])
def test_an_inexact_boundary_names_the_token_that_no_rounding_excuses(tokens: int) -> None:
    """`repro --export` asserts this element alone."""
    with pytest.raises(Mismatch) as caught:
        judged(tokens)
    [example] = caught.value.failure.examples
    b, token = example["index"]
    place = order(ROW[0]).tolist().index(token)
    before = float(probabilities_before(np.sort(ROW[0].astype(np.float64))[::-1])[place])
    assert (b, abs(before - 0.5) > BOUND, before > 0.5) == (0, True, tokens > 0)
    shown = (float(ROW[0, token]), "-inf")
    assert (example["expected"], example["got"]) == (shown if tokens < 0 else shown[::-1])


@pytest.mark.parametrize("tokens", [200, -200])
def test_further_is_wrong(tokens: int) -> None:
    assert abs(tokens) / ROW.size > INEXACT
    assert judged(tokens).any()


def test_a_tail_that_is_cut_off_many_times_over_is_wrong() -> None:
    """Three tokens are little beside p = 0.5, and more than all that p = 0.9999 may leave out."""
    assert judged(-3, 0.9999).any()


def test_other_tokens_than_the_first_are_wrong() -> None:
    inputs = {"output": np.zeros_like(ROW), "logits": ROW, "k": None, "p": np.array([0.5], np.float32)}
    expected = apply_top_k_top_p(**inputs)["output"]
    got = expected.copy()
    got[0, order(ROW[0])[1]] = -np.inf

    assert within(expected, got, inputs).any()

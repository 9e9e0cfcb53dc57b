"""The test of a distribution."""

from __future__ import annotations

import numpy as np
import pytest
import tables
from scipy import stats

from verispec.judge import Inconclusive, Mismatch
from verispec.judge.statistics import assert_distribution, binomial_p_value, binomial_tail, fits
from verispec.judge.statistics.budget import allow_p_values


def test_the_only_possible_outcome_decides_without_a_p_value() -> None:
    with allow_p_values(0):
        assert assert_distribution([0, 7], [0.0, 1.0], "drafts") == 1.0
        with pytest.raises(Mismatch, match="outcome 0 has probability 0 and came 1 times"):
            assert_distribution([1, 2999], [0.0, 1.0], "drafts")
        with pytest.raises(Inconclusive, match="0 draws"):
            assert_distribution([0, 0], [0.0, 1.0], "drafts")


def test_a_rare_outcome_needs_draws() -> None:
    with pytest.raises(Inconclusive, match="3000 draws are too few"):
        assert_distribution([1, 2999], [0.001, 0.999], "drafts")


@pytest.mark.parametrize(
    "expected", [[14.0, 14.0], [10.0, 10.0], [10.0, 30.0], [53 / 3] * 3, [10.0, 10.0, 30.0]], ids=str
)
def test_small_tables_fail_no_more_often_than_their_level(expected: list[float]) -> None:
    """Without margin and exact test, two cells of 14 fail 9 times as often, and three of 53 / 3 draws 2.4 times."""
    assert tables.enumerated(expected) <= 1


@pytest.mark.parametrize("expected", [tables.equal(32), tables.beside_a_large_one(64)], ids=len)
def test_tables_of_small_cells_fail_no_more_often_than_their_level(expected: list[float]) -> None:
    found = tables.sampled(expected)
    assert found["plain"] > 2
    assert 0.1 < found["tested"] < 0.7


def test_a_deviation_fails() -> None:
    assert_distribution([540, 460], [0.5, 0.5], "coins")
    with pytest.raises(Mismatch, match="at 1 degrees of freedom"):
        assert_distribution([600, 400], [0.5, 0.5], "coins")
    with pytest.raises(Mismatch, match="at 7 degrees of freedom"):
        assert_distribution([160, 40, 100, 100, 100, 100, 100, 100], [0.125] * 8, "dice")


def ended(exact: np.ndarray, drawn: np.ndarray, seed: int) -> tuple[float, float, float]:
    """Return how often 3,000 draws in thirds, and all of them, fail, and the part that is drawn."""
    rng = np.random.default_rng(seed)
    early = whole = thirds = 0
    for _ in range(200):
        parts = rng.multinomial(1000, drawn, 3).cumsum(axis=0)
        end = next((n for n in (0, 1) if fits(parts[n], exact, (n + 1) / 3)), 2)
        early, whole, thirds = early + fails(parts[end], exact), whole + fails(parts[2], exact), thirds + end + 1
    return early / 200, whole / 200, thirds / 600


def fails(counts: np.ndarray, exact: np.ndarray) -> bool:
    try:
        assert_distribution(counts.tolist(), exact, "draws")
    except Mismatch:
        return True
    return False


@pytest.mark.parametrize(("cells", "distance"), [(27, 0.08), (512, 0.12)])
def test_a_sample_that_ends_early_finds_what_the_whole_one_does(cells: int, distance: float) -> None:
    rng = np.random.default_rng(2)
    exact = rng.dirichlet(np.full(cells, 0.5))
    assert ended(exact, exact, 3)[2] < 0.6
    moved = rng.choice([-1, 1], cells) * exact
    moved -= exact * moved.sum()
    early, whole, _ = ended(exact, exact + moved * 2 * distance / abs(moved).sum(), 4)
    assert whole > 0.3
    assert early >= whole - 0.03


def test_a_sample_ends_early_only_where_it_fits() -> None:
    assert not fits([0, 0], [0.5, 0.5], 0.3)
    assert not fits([1, 2999], [0.0, 1.0], 0.3)
    assert not fits([300, 700], [0.5, 0.5], 0.3)
    assert fits([0, 7], [0.0, 1.0], 0.3)
    assert fits([502, 498], [0.5, 0.5], 0.3)


@pytest.mark.parametrize("p", [1e-6, 0.03, 0.5, 0.81, 1.0])
@pytest.mark.parametrize("draws", [1, 40, 3000])
def test_binomial_probabilities_are_those_of_scipy(draws: int, p: float) -> None:
    """Both sum up to 3,000 terms of logarithms near 1e4, which float64 rounds by 1e-12 each."""
    for seen in {0, 1, draws // 3, draws // 2, draws * 4 // 5, draws - 1, draws}:
        two_sided = stats.binomtest(seen, draws, p).pvalue
        assert binomial_p_value(seen, draws, p) == pytest.approx(two_sided, rel=1e-8, abs=1e-300)
        assert binomial_tail(seen, draws, p) == pytest.approx(stats.binom.sf(seen - 1, draws, p), rel=1e-8, abs=1e-300)
    assert binomial_tail(draws + 1, draws, p) == 0.0


def test_the_outcome_that_deviates_most_is_named() -> None:
    """The number of a cell of a table of drafts and tokens says nothing to who wrote the sampler."""
    names = ["draft 0 kept", "draft 0 after its rejection", "another"]
    with pytest.raises(Mismatch, match=r"p = .*; draft 0 after its rejection came 500 times, expected 200") as caught:
        assert_distribution([500, 500, 1000], [0.3, 0.1, 0.6], "tokens", names)
    assert [row["outcome"] for row in caught.value.failure.details["counts"]] == names

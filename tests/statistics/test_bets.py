"""Bets are fair: under the stated distribution the expected ratio of every bet is at most 1."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from simulations import row_sets

from verispec.judge.statistics.bets import AcceptanceBets, TailBets, TextBets, TokenBets
from verispec.judge.statistics.budget import LEVEL
from verispec.judge.statistics.evidence import Evidence
from verispec.judge.statistics.faults import bets
from verispec.judge.statistics.given_drafts import ACCEPTANCE, BONUS, RECOVERED
from verispec.judge.statistics.places import PlaceView, log_evidence
from verispec.judge.statistics.rows import Rows, shared_noise_row

ROUNDING = 1e-9


def random_rows(seed: int, vocab: int) -> Rows:
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.full(vocab, 0.2), 3), rng.dirichlet(np.full(vocab, 0.2), 3)
    p[0, :-1] *= np.arange(vocab - 1) > 1  # Tokens of probability 0; the last one keeps the row possible.
    p[:, -1] += 1e-3
    return Rows(p / p.sum(1, keepdims=True), q)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from([2, 3, 40]))
@example(2507, 2)  # p(1) is 1 - 6e-11.
@example(3786, 2)  # The residual's mass is 1e-9.
def test_bets_on_tokens_are_fair(seed: int, vocab: int) -> None:
    rows = random_rows(seed, vocab)
    tokens = np.arange(vocab)
    for row in range(3):
        at, other = np.full(vocab, row), np.random.default_rng(seed).dirichlet(np.ones(vocab))
        for model in (TokenBets("t", RECOVERED), TokenBets("t", BONUS), TextBets(True), TextBets(False)):
            ratios = model.log_ratios(rows, at, tokens, dict.fromkeys(model.extra, other))
            assert ratios.shape == (len(model.bets), vocab)
            expected = np.exp(ratios) @ rows.p[row]
            assert (expected <= 1 + ROUNDING).all(), model.bets[int(expected.argmax())].label


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from([2, 3, 40]))
@example(4703, 2)  # The tempered residual's mass is 2e-11.
def test_bets_on_recovered_tokens_are_fair(seed: int, vocab: int) -> None:
    target = random_rows(seed, vocab)
    rows = Rows(target.residual, target.q)
    model, tokens = TokenBets("recovered token", ("excluded",)), np.arange(vocab)
    for row in range(3):
        at = np.full(vocab, row)
        ratios = model.log_ratios(rows, at, tokens, {"excluded": target.outside(at, tokens)}, target)
        possible = rows.p[row] > 0
        assert (np.exp(ratios[:, possible]) @ rows.p[row, possible] <= 1 + ROUNDING).all()


def test_a_tempered_residual_is_a_distribution() -> None:
    rows, tokens = random_rows(3, 40), np.arange(40)
    for row, power in ((0, 1.25), (1, 0.8), (2, 1.0)):
        density = rows.tempered_residual(power, np.full(40, row), tokens)
        assert density.sum() == pytest.approx(1.0)
        if power == 1.0:
            assert density == pytest.approx(rows.residual[row])


def test_equal_probabilities_leave_no_residual() -> None:
    """Float32 logits of the same probability in p and q differ by rounding; a bet must not read it as a rare token."""
    p = np.array([[0.3, 0.3, 0.4 * (1 + 2**-22)]])
    rows = Rows(p, np.array([[0.1, 0.5, 0.4]]))
    assert rows.residual.tolist() == [[1.0, 0.0, 0.0]]
    tails = TailBets("recovered token")
    ratios = tails.log_ratios(Rows(rows.residual, rows.q), np.zeros(1, int), np.array([2]))
    gained = [bet.key == "tail gained" for bet in tails.bets]
    assert (ratios[gained] == 0).all()


@settings(deadline=None)
@given(st.floats(0.0, 5.0), st.floats(0.0, 1.0))
def test_bets_on_acceptance_are_fair(ratio: float, other: float) -> None:
    a = min(ratio, 1.0)
    model = AcceptanceBets(ACCEPTANCE)
    total = np.zeros(len(model.bets))
    for accepted, null in ((True, a), (False, 1.0 - a)):
        if null > 0:
            extra = {key: np.array([other]) for key in ACCEPTANCE}
            arrays = (np.array([a]), np.array([ratio]), np.array([null]), np.array([accepted]))
            total += null * np.exp(model.log_ratios(*arrays, extra)[:, 0])
    assert (total <= 1 + ROUNDING).all()


def test_densities_of_faults_sum_to_one() -> None:
    _source, exact = row_sets(0, "none", vocab=512)
    for table in (exact.draft_rows.shared_noise, exact.unsigned, exact.residuals.p):
        assert np.allclose(table.sum(1), 1.0)


def test_shared_noise_follows_its_formula() -> None:
    """400,000 races: draft by E / q, then recovery by the same E over the residual."""
    rng = np.random.default_rng(0)
    p, q = np.array([0.10, 0.55, 0.35]), np.array([0.60, 0.35, 0.05])
    noise = rng.exponential(size=(400_000, 3))
    draft = (noise / q).argmin(1)
    rejected = rng.random(len(noise)) >= p[draft] / q[draft]
    residual = np.maximum(p - q, 0)
    with np.errstate(divide="ignore"):
        token = np.where(residual > 0, noise / residual, np.inf).argmin(1)[rejected]
    seen = (token == 1).mean()
    expected = shared_noise_row(residual, q)
    assert expected.sum() == pytest.approx(1.0)
    assert abs(seen - expected[1]) < 5 * math.sqrt(expected[1] * expected[2] / len(token))
    assert abs(seen - residual[1] / residual.sum()) > 0.1


def test_places_are_a_likelihood_ratio() -> None:
    """Two draws in two cells: the mixtures of all outcomes sum to the uniform distribution's 1."""
    outcomes = np.array([[2, 0], [1, 1], [1, 1], [0, 2]])
    assert np.exp(log_evidence(outcomes)).mean() == pytest.approx(1.0)


def test_rounding_is_paid_for() -> None:
    """An outcome that rounding may make e^0.1 likelier gives a bet that much less."""
    chosen = bets("token", ("temperature",))
    plain, paid = Evidence(chosen), Evidence(chosen)
    ratios = np.full((len(chosen), 10), 0.5)
    plain.add(ratios, 10)
    paid.add(ratios, 10, np.full(10, 0.1))
    assert plain.log_e - paid.log_e == pytest.approx(1.0)


def test_a_small_weight_needs_more_evidence() -> None:
    evidence = Evidence(bets("token", ("greedy",)), [PlaceView("likely first")], weight=0.01)
    assert evidence.limit == pytest.approx(-math.log(LEVEL * 0.01))

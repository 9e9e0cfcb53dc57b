"""Coupling and noise: agreements bound the total variation, disagreements fail, and grids of noise are seen."""

from __future__ import annotations

import numpy as np
import pytest
from simulations import row_sets

from verispec.judge.statistics.coupling import Coupling, SharedNumbers, bound
from verispec.judge.statistics.given_drafts import Requests
from verispec.judge.statistics.noise import kept_share, measure
from verispec.reference.oracle.philox import Draw, gumbel, gumbel_rows


def coupled(count: int, seed: int = 0) -> tuple[Coupling, Requests, SharedNumbers]:
    """Requests that follow the rule by their numbers, drawn here and decided one by one."""
    source, exact = row_sets(0, "none", vocab=512)
    rng = np.random.default_rng(seed)
    sets, lengths = source.choose(rng, count)
    drafts = source.draw(rng, sets)
    uniform = rng.random((count, source.drafts))
    noise, bonus = (rng.exponential(size=(count, source.vocab_size)) for _ in range(2))
    accepted, last = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for b in range(count):
        m, i = sets[b], 0
        while i < lengths[b] and uniform[b, i] * exact.q[m, i, drafts[b, i]] < exact.p[m, i, drafts[b, i]]:
            i += 1
        mass = exact.p[m, i] if i == lengths[b] else np.maximum(exact.p[m, i] - exact.q[m, i], 0)
        accepted[b], last[b] = i, (mass / (bonus if i == lengths[b] else noise)[b]).argmax()
    return Coupling(exact), Requests(sets, lengths, drafts, accepted, last), SharedNumbers(uniform, noise, bonus)


def test_a_request_that_follows_its_numbers_agrees() -> None:
    coupling, requests, numbers = coupled(300)
    coupling.add(requests, numbers)
    assert (coupling.requests, coupling.differing, coupling.wrong) == (300, 0, [])
    for bracket in coupling.brackets():
        assert bracket["low"] <= bracket["ratio"] <= bracket["high"]


@pytest.mark.parametrize("bonus", [True, False])
def test_another_token_fails(bonus: bool) -> None:
    coupling, requests, numbers = coupled(300)
    at = np.flatnonzero((requests.accepted == requests.lengths) == bonus)[0]
    requests.last[at] = (requests.last[at] + 1) % 512
    coupling.add(requests, numbers)
    assert coupling.differing == 1
    assert ("bonus" if bonus else "recovered") in coupling.wrong[0]


def test_another_decision_fails() -> None:
    coupling, requests, numbers = coupled(300)
    at = np.flatnonzero(requests.accepted < requests.lengths)[0]
    numbers.uniform[at, requests.accepted[at]] = 1e-9
    coupling.add(requests, numbers)
    assert "rejected draft" in coupling.wrong[0]


def test_the_bound_is_clopper_pearsons() -> None:
    assert bound(100_000, 0) == pytest.approx(1.38e-4, rel=2e-3)
    assert bound(100_000, 3) > bound(100_000, 0)
    assert bound(0, 0) == 1.0


@pytest.mark.parametrize(("bits", "grid"), [(24, 24), (16, 16), (53, 0)])
def test_grids_of_noise_are_seen(bits: int, grid: int) -> None:
    uniform = np.random.default_rng(0).integers(1, 2**bits, 2_000_000) * 2.0**-bits
    report = measure(-np.log1p(-uniform))
    assert report is not None
    assert report.grid_bits == grid


def test_too_little_noise_tells_nothing() -> None:
    assert measure(np.ones(1000)) is None


def tail_loss(vocab_size: int, bits: int) -> float:
    """Return the largest total variation that lost tails cause., all tokens but one having one rare probability."""
    e = np.geomspace(2.0 ** -(bits + 8), 2.0 ** -(bits - 8), 400)
    return float((vocab_size * e * (1.0 - kept_share(e, bits))).max())


def test_noise_of_32_bits_stays_within_its_bound() -> None:
    """Clause WS-14: 4.2e-6 over 151,936 tokens, 7.2e-6 over 262,144; 24 bits lose a thousand times more."""
    assert tail_loss(262_144, 32) < 1e-5
    assert tail_loss(151_936, 32) == pytest.approx(4.2e-6, rel=0.02)
    assert tail_loss(151_936, 24) > 1e-3
    assert kept_share(1e-10, 32) == pytest.approx(0.81, abs=0.01)


def test_many_rows_of_numbers_are_those_of_each_row() -> None:
    seeds, positions, steps = np.array([3, -5, 2**62 + 1]), np.array([0, 7, 2**33 + 1]), np.array([0, 3, 200])
    rows = gumbel_rows(seeds, positions, steps, Draw.TARGET, 37)
    for row, seed, position, step in zip(rows, seeds, positions, steps, strict=True):
        assert (row == gumbel(int(seed), int(position), int(step), Draw.TARGET, 37)).all()

"""The test of a distribution."""

from __future__ import annotations

import pytest

from verispec.judge import Inconclusive, Mismatch
from verispec.judge.statistics import assert_distribution
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

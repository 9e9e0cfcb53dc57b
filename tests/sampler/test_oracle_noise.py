"""Noise of the oracles: one lane after the other, and all lanes at once."""

from __future__ import annotations

import numpy as np
import pytest

from verispec.reference.oracle.philox import Draw, gumbel, uniform


@pytest.mark.parametrize("lanes", [1, 127, 128, 129, 131, 1000])
@pytest.mark.parametrize(("seed", "pos", "step"), [(-(2**63), 2**40 - 1, 0), (2**63 - 1, 0, 300), (-1, 2**33 + 7, 1)])
def test_every_lane_has_the_noise_of_its_own_number(lanes: int, seed: int, pos: int, step: int) -> None:
    numbers = np.array([uniform(seed, pos, step, Draw.DRAFT, lane) for lane in range(lanes)])
    expected = -np.log(-np.log1p(-numbers))
    assert gumbel(seed, pos, step, Draw.DRAFT, lanes).tolist() == expected.tolist()

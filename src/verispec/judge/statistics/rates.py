"""Evidence about decisions with known probabilities: acceptance at a rate that a configuration or a model states."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.judge.statistics.bets import AcceptanceBets
from verispec.judge.statistics.evidence import Evidence
from verispec.judge.statistics.places import PlaceView, cells_of, randomiser
from verispec.judge.statistics.rows import FLOOR

Array = np.ndarray[Any, Any]


class Rates:
    """Turns decisions into evidence.

    Args:
        weight: part of the run's budget.
        seed: seed of the randomised places.
        unit: name of the counted things.
    """

    def __init__(self, weight: float, seed: int, unit: str) -> None:
        self._bets = AcceptanceBets(())
        self._view = PlaceView("acceptance")
        self.evidence = Evidence(self._bets.bets, [self._view], weight, unit)
        self._random = randomiser(seed)

    def add(self, rate: Array, accepted: Array, slack: float = 0.0) -> None:
        """Judge decisions that are positive with probability `rate` [n].

        Args:
            rate: stated probabilities.
            accepted: [n] bool.
            slack: maximum absolute change of a rate by rounding.
        """
        exact = np.where(accepted, rate, 1.0 - rate)
        null = np.maximum(exact, max(slack, FLOOR))
        if slack == 0.0 and (exact <= 0).any():
            self.evidence.impossible.append("a decision of probability 0")
        ratios = self._bets.log_ratios(rate, rate, null, accepted, {})
        self.evidence.add(ratios, len(rate), np.log(np.minimum(null + slack, 1.0) / null))
        u = self._random.random(len(rate))
        place = np.where(accepted, u * rate, rate + u * (1.0 - rate))
        self._view.add(cells_of(place, np.zeros(len(rate)), u))
        self.evidence.checkpoint()

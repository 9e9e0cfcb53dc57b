"""Evidence against losslessness: test martingales over named faults and over places (arXiv 2210.01948).

The evidence E is the weighted mean of all capitals. A correct sampler reaches E >= 1/level with a probability of at
most `level` at any time, at any sample size and vocabulary. Merging over tests is a weighted mean too, which is valid
under any dependence (arXiv 1912.06116).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from verispec.judge.statistics.budget import LEVEL
from verispec.judge.statistics.faults import Bet
from verispec.judge.statistics.places import PlaceView, logsumexp

Array = np.ndarray[Any, Any]

LOG_LIMIT = -float(np.log(LEVEL))
NORMAL_999 = 3.0902
"""Quantile of the normal distribution at 99.9 %."""
CHECKPOINTS = 64


@dataclass(frozen=True, slots=True)
class Explanation:
    """A bet or a view with its capital, as log10."""

    label: str
    log10: float
    issues: tuple[str, ...] = ()


@dataclass
class Evidence:
    """Capitals of a fixed list of bets and views.

    Args:
        bets: named faults; they share half of the weight.
        views: orders of places, which share the other half.
        weight: part of the run's budget that this test has.
        unit: name of the counted things, such as "requests".
    """

    bets: Sequence[Bet]
    views: Sequence[PlaceView] = ()
    weight: float = 1.0
    unit: str = "tokens"
    count: int = 0
    impossible: list[str] = field(default_factory=list)
    trail: list[tuple[int, float, Array]] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        size = len(self.bets)
        self._logs = np.zeros(size)
        self._against = np.zeros(size)
        self._growth = np.zeros(size)
        self._square = np.zeros(size)
        self._paid = 0.0

    def add(self, log_ratios: Array, count: int, slack: Array | float = 0.0) -> None:
        """Multiply the capitals by the ratios of `count` new outcomes.

        Args:
            log_ratios: [bets, n] log(f/p).
            count: units that these outcomes came from.
            slack: [n] log of how far rounding may raise p over the value that was used; every ratio pays it.
        """
        slack = np.broadcast_to(slack, log_ratios.shape[1:])
        paid = float(slack.sum())
        self._logs += log_ratios.sum(1) - paid
        self._against += -log_ratios.sum(1) - paid
        # E_f[log f/p] = E_p[f/p log f/p]: the growth under the fault, from outcomes of a correct sampler.
        capped = np.clip(log_ratios, -30.0, 30.0)
        weighted = np.exp(capped) * capped
        self._growth += weighted.sum(1)
        self._square += (weighted * capped).sum(1)
        self._paid += paid
        self.count += count

    def checkpoint(self) -> None:
        """Keep the capitals of this moment for pictures; the trail is thinned to at most `CHECKPOINTS` moments."""
        self.trail.append((self.count, self.log_e, self._logs.copy()))
        if len(self.trail) > CHECKPOINTS:
            del self.trail[1:-1:2]

    @property
    def log_e(self) -> float:
        """log E; infinite once an impossible outcome was seen."""
        if self.impossible:
            return float("inf")
        parts = []
        halves = bool(len(self.bets)) + bool(len(self.views))
        if len(self.bets):
            parts.append(float(logsumexp(self._logs)) - np.log(len(self.bets)))
        if len(self.views):
            views = [view.log_evidence - self._paid for view in self.views]
            parts.append(float(logsumexp(np.array(views))) - np.log(len(views)))
        return float(logsumexp(np.array(parts)) - np.log(halves))

    @property
    def limit(self) -> float:
        """log E at which this test alone fails the run."""
        return LOG_LIMIT - float(np.log(self.weight))

    @property
    def failed(self) -> bool:
        """True when the evidence against the engine reaches the limit of this test."""
        return self.log_e >= self.limit

    @property
    def named(self) -> bool:
        """True when the capital of one fault alone reaches the limit of this test."""
        return bool(len(self.bets)) and float(self._logs.max()) >= self.limit

    def explanations(self) -> list[Explanation]:
        """Return all bets and views, the one with the largest capital first."""
        named = [
            Explanation(bet.label, log / np.log(10), bet.fault.issues)
            for bet, log in zip(self.bets, self._logs.tolist(), strict=True)
        ]
        views = [Explanation(f"places: {view.name}", view.log_evidence / np.log(10)) for view in self.views]
        return sorted(named + views, key=lambda e: -e.log10)

    def best_bets(self) -> list[tuple[Bet, float]]:
        """Return the best size of each fault with its log10 capital, the best fault first."""
        best: dict[tuple[str, str], tuple[Bet, float]] = {}
        for bet, log in zip(self.bets, (self._logs / np.log(10)).tolist(), strict=True):
            key = (bet.where, bet.key)
            if key not in best or log > best[key][1]:
                best[key] = (bet, log)
        return sorted(best.values(), key=lambda item: -item[1])

    def excluded(self) -> list[Bet]:
        """Return the excluded faults: with f as the null, p/f is a test martingale.

        All tests of a run together exclude a fault wrongly with a probability of at most `LEVEL`.
        """
        return [bet for bet, log in zip(self.bets, self._against, strict=True) if log >= self.limit]

    def excludes(self, effects: Iterable[Bet]) -> bool:
        """Return True if every one of `effects`, which are bets of this test, is excluded."""
        against = dict(zip(self.bets, self._against.tolist(), strict=True))
        return all(against[bet] >= self.limit for bet in effects)

    def found(self) -> list[Bet]:
        """Return the faults that this many outcomes find with a probability of about 99.9 %.

        The growth per outcome under the fault and its spread are estimated from the outcomes, each
        weighted by f/p. A normal approximation gives the capital that all but 0.1 % of runs reach.
        """
        price = self.limit + float(np.log(2 * max(len(self.bets), 1))) + self._paid
        spread = np.sqrt(np.maximum(self._square, 0.0))
        sure = self._growth - NORMAL_999 * spread >= price
        return [bet for bet, yes in zip(self.bets, sure, strict=True) if yes]

"""Coupling: an engine and the oracle decide with the same random numbers, and their tokens are compared.

Where two samplers share their numbers, the total variation between their distributions is at most the probability that
their tokens differ. N agreements therefore bound it by about ln(1/level) / N, for any vocabulary and number of drafts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from verispec.judge.statistics.budget import LEVEL
from verispec.judge.statistics.given_drafts import Requests, RowDistributions
from verispec.judge.statistics.rows import FLOOR

Array = np.ndarray[Any, Any]

ARITHMETIC = 2.0**-16
"""Maximum error of the logarithm of a score (clauses GUM-8, PRJ-11 and RSR-14)."""


@dataclass(frozen=True)
class SharedNumbers:
    """The random numbers that decided a batch.

    Attributes:
        uniform: [B, K] acceptance numbers; columns past a request's drafts are not read.
        noise: [B, V] exponentials of the token at the first rejection.
        bonus_noise: [B, V] exponentials of the bonus token; NaN rows where the engine does not report it.
    """

    uniform: Array
    noise: Array
    bonus_noise: Array


@dataclass
class Coupling:
    """Counts agreements of an engine with the oracle.

    Args:
        rows: row sets of the requests.

    Attributes:
        requests: requests compared.
        tokens: tokens compared.
        differing: requests whose tokens are not the oracle's, near ties included.
        wrong: differences that no rounding explains; such a request fails the case.
    """

    rows: RowDistributions
    requests: int = 0
    tokens: int = 0
    differing: int = 0
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        shape = self.rows.q.shape
        self._accepted = np.zeros(shape)
        self._rejected = np.ones(shape)
        self._seen = np.zeros(shape, dtype=np.int64)

    def add(self, requests: Requests, numbers: SharedNumbers) -> None:
        """Compare one batch with the tokens that its random numbers give.

        Args:
            requests: requests of the batch, with their emitted tokens.
            numbers: random numbers that the engine reports for them.
        """
        rows, drafts = self.rows, self.rows.drafts
        slack = rows.slack[requests.sets] + ARITHMETIC
        differs = np.zeros(len(requests.sets), bool)
        for i in range(drafts):
            b = np.flatnonzero((requests.lengths > i) & (requests.accepted >= i))
            if not len(b):
                break
            m, d, u = requests.sets[b], requests.drafts[b, i], numbers.uniform[b, i]
            ratio = rows.p[m, i, d] / np.maximum(rows.q[m, i, d], FLOOR)
            yes, expected = requests.accepted[b] > i, u <= ratio
            far = np.abs(np.log(np.maximum(ratio, FLOOR) / np.maximum(u, FLOOR))) > slack[b]
            differs[b] |= yes != expected
            for n in np.flatnonzero((yes != expected) & far)[:1]:
                done = "accepted" if yes[n] else "rejected"
                self.wrong.append(
                    f"request {self.requests + b[n]} {done} draft {i} with p/q = {ratio[n]:.9g} at u = {u[n]:.9g}"
                )
            np.maximum.at(self._accepted[:, i], (m[yes], d[yes]), u[yes])
            np.minimum.at(self._rejected[:, i], (m[~yes], d[~yes]), u[~yes])
            np.add.at(self._seen[:, i], (m, d), 1)
        self._add_tokens(requests, numbers, slack, differs)
        self.requests += len(requests.sets)
        self.tokens += int((requests.accepted + 1).sum())
        self.differing += int(differs.sum())

    def _add_tokens(self, requests: Requests, numbers: SharedNumbers, slack: Array, differs: Array) -> None:
        """Compare recovered and bonus tokens: the largest mass over noise wins, up to rounding of either."""
        m, i = requests.sets, requests.accepted
        is_bonus = i == requests.lengths
        p = self.rows.p[m, i]
        q = np.where(is_bonus[:, None], 0.0, self.rows.q[m, np.minimum(i, self.rows.drafts - 1)])
        noise = np.where(is_bonus[:, None], numbers.bonus_noise, numbers.noise)
        known = np.flatnonzero(~np.isnan(noise[:, 0]))
        p, q, noise, width = p[known], q[known], noise[known], slack[known, None]
        at, token = np.arange(len(known)), requests.last[known]
        best = (np.maximum(p - q, 0.0) / noise).argmax(1)
        high = (np.maximum(p * np.exp(width) - q, 0.0) / noise)[at, token]
        low = (np.maximum(p * np.exp(-width) - q, 0.0) / noise).max(1)
        differs[known] |= best != token
        for n in np.flatnonzero((best != token) & (high < low))[:1]:
            kind = "bonus" if is_bonus[known[n]] else "recovered"
            self.wrong.append(
                f"request {self.requests + known[n]} emitted {token[n]} as its {kind} token; its numbers give {best[n]}"
            )

    def brackets(self) -> list[dict[str, float]]:
        """Return acceptance thresholds bracketed by sorted numbers: the five most frequent drafts with 0 < p/q < 1.

        A correct sampler accepts every number below p/q and none above, so n numbers bracket p/q to about 1/n.

        Returns:
            Per draft: p/q as "ratio", the largest accepted number as "low", the smallest rejected one as "high", and
            the number of its draws as "drafts".
        """
        ratio = self.rows.p[:, :-1] / np.maximum(self.rows.q, FLOOR)
        seen = np.where((ratio > 0) & (ratio < 1), self._seen, 0)
        order = np.argsort(-seen, axis=None)[:5]
        found = []
        for at in zip(*np.unravel_index(order, seen.shape), strict=True):
            if seen[at] > 1:
                low, high = float(self._accepted[at]), float(self._rejected[at])
                found.append({"ratio": float(ratio[at]), "low": low, "high": high, "drafts": int(seen[at])})
        return found


def bound(requests: int, differing: int, level: float = LEVEL) -> float:
    """Return the upper bound on the total variation of two distributions (Clopper-Pearson).

    Args:
        requests: number of coupled requests.
        differing: number of those whose tokens differ.
        level: 1 minus the confidence.

    Returns:
        From 0 to 1.
    """
    from scipy.special import betainccinv

    if not requests or differing >= requests:
        return 1.0
    return float(betainccinv(differing + 1, requests - differing, level))

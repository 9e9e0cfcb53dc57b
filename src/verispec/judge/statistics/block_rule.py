"""Evidence from a sampler that verifies blocks (Sun et al. 2024), given the drafts.

With the joint ratios R_i = min(R_{i-1} p/q, 1), prefix i passes with probability h_i, and the longest prefix that
passes is kept. So the decisions are independent when read from the last prefix to the first. The next token follows
max(R p - q, 0) over its sum after a rejection, p at the bonus.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.judge.statistics.bets import AcceptanceBets, TokenBets
from verispec.judge.statistics.evidence import Evidence
from verispec.judge.statistics.given_drafts import CLEARLY, Requests, RowDistributions
from verispec.judge.statistics.places import PlaceView, cells_of, randomiser
from verispec.judge.statistics.rows import FLOOR, Rows

Array = np.ndarray[Any, Any]

ACCEPTANCE = ("one u", "token rule", "excluded")
RECOVERED = ("target", "token residual", "draft row", "excluded")
BONUS = ("last row", "first row", "excluded")


class BlockRule:
    """Turns batches of block verifications into evidence.

    Args:
        rows: the row sets that requests choose from.
        weight: part of the run's budget.
        seed: seed of the randomised places.
    """

    def __init__(self, rows: RowDistributions, weight: float, seed: int) -> None:
        self.rows = rows
        self._acceptance = AcceptanceBets(ACCEPTANCE)
        self._recovered = TokenBets("recovered token", RECOVERED)
        self._bonus = TokenBets("bonus token", BONUS)
        self._views = [
            PlaceView("recovered, likely first"),
            PlaceView("recovered, by id"),
            PlaceView("bonus, likely first"),
        ]
        self._decisions = PlaceView("acceptance")
        bets = [*self._acceptance.bets, *self._recovered.bets, *self._bonus.bets]
        self.evidence = Evidence(bets, [*self._views, self._decisions], weight, unit="requests")
        self._random = randomiser(seed)

    def add(self, requests: Requests) -> None:
        """Add the evidence of the `requests` of one batch."""
        count = len(requests.sets)
        ratio, h = self._thresholds(requests)
        first, second = len(self._acceptance.bets), len(self._acceptance.bets) + len(self._recovered.bets)
        out, slack = np.zeros((len(self.evidence.bets), count)), np.zeros(count)
        self._add_lengths(requests, ratio, h, out[:first], slack)
        self._add_recovered(requests, ratio, out[first:second], slack)
        self._add_bonus(requests, out[second:], slack)
        self.evidence.add(out, count, slack)
        self.evidence.checkpoint()

    def _thresholds(self, requests: Requests) -> tuple[Array, Array]:
        """Return joint ratios R [B, K + 1] of every prefix, R_0 = 1, and h [B, K + 1] of the prefixes 1 to K."""
        rows, count, drafts = self.rows, len(requests.sets), self.rows.drafts
        ratio, h = np.ones((count, drafts + 1)), np.zeros((count, drafts + 1))
        for i in range(drafts):
            m, d = requests.sets, requests.drafts[:, i]
            step = rows.p[m, i, d] / np.maximum(rows.q[m, i, d], FLOOR)
            ratio[:, i + 1] = np.minimum(ratio[:, i] * step, 1.0)
        for i in range(1, drafts + 1):
            r, m = ratio[:, i], requests.sets
            inner = np.flatnonzero(requests.lengths > i)
            h[:, i] = r
            if i < drafts and len(inner):
                mass = np.maximum(r[inner, None] * rows.p[m[inner], i] - rows.q[m[inner], i], 0.0).sum(1)
                rest = mass + 1.0 - r[inner]
                h[inner, i] = np.where(rest > 1e-12, mass / np.maximum(rest, 1e-12), 1.0)
        return ratio, h

    def _add_lengths(self, requests: Requests, ratio: Array, h: Array, out: Array, slack: Array) -> None:
        """Judge prefix after prefix from the longest one: a decision is made while no longer prefix has passed."""
        drafts = self.rows.drafts
        for i in range(drafts, 0, -1):
            b = np.flatnonzero((requests.lengths >= i) & (requests.accepted <= i))
            if not len(b):
                continue
            yes = requests.accepted[b] == i
            a = h[b, i]
            wide = 2.0 * (i + 1) * self.rows.slack[requests.sets[b]]
            for n in np.flatnonzero(yes & (a <= 0))[:1]:
                self.evidence.impossible.append(
                    f"request {b[n] + self.evidence.count} kept a prefix of {i} drafts with probability 0"
                )
            exact = np.where(yes, a, 1.0 - a)
            # A decision that rounding alone explains has the probability of that rounding.
            null = np.where(exact > FLOOR, exact, np.maximum(wide, FLOOR))
            slack[b] += np.log(np.minimum(null + wide, 1.0) / null)
            d = requests.drafts[b, i - 1]
            m = requests.sets[b]
            # With one number for all prefixes, u is above every h that has failed.
            longer = np.where(np.arange(drafts + 1) > i, np.where(self._within(requests, b), h[b], 0.0), 0.0).max(1)
            below = np.maximum(a - longer, 0.0) / np.maximum(1.0 - longer, FLOOR)
            others = {
                "one u": np.where(requests.lengths[b] > i, below, np.nan),
                "token rule": self._token_rule(requests, b, i),
                "excluded": np.where(self.rows.p[m, i - 1, d] <= 0, 1.0, a),
            }
            out[:, b] += self._acceptance.log_ratios(a, a, null, yes, others)
            u = self._random.random(len(b))
            self._decisions.add(cells_of(np.where(yes, u * a, a + u * (1.0 - a)), np.zeros(len(b)), u))

    def _token_rule(self, requests: Requests, b: Array, i: int) -> Array:
        """Return the probability [n] that token-wise verification keeps `i` drafts, given that it keeps no more."""
        m, kept = requests.sets[b], np.ones(len(b))
        for j in range(i):
            d = requests.drafts[b, j]
            kept *= np.minimum(1.0, self.rows.p[m, j, d] / np.maximum(self.rows.q[m, j, d], FLOOR))
        longer = np.zeros(len(b))
        if i < self.rows.drafts:
            d = requests.drafts[b, i]
            after = np.minimum(1.0, self.rows.p[m, i, d] / np.maximum(self.rows.q[m, i, d], FLOOR))
            longer = np.where(requests.lengths[b] > i, kept * after, 0.0)
        exactly: Array = (kept - longer) / np.maximum(1.0 - longer, FLOOR)
        return exactly

    def _within(self, requests: Requests, b: Array) -> Array:
        """Return a mask [n, K + 1] of the prefixes that are no longer than the request's drafts."""
        return np.arange(self.rows.drafts + 1) <= requests.lengths[b, None]

    def _add_recovered(self, requests: Requests, ratio: Array, out: Array, slack: Array) -> None:
        b = np.flatnonzero(requests.accepted < requests.lengths)
        if not len(b):
            return
        m, i, t = requests.sets[b], requests.accepted[b], requests.last[b]
        p, q, joint = self.rows.p[m, i], self.rows.q[m, i], ratio[b, i][:, None]
        rest = np.maximum(joint * p - q, 0.0)
        mass = rest.sum(1)
        rows = Rows(np.where(mass[:, None] > 0, rest / np.maximum(mass[:, None], FLOOR), p))
        at = np.arange(len(b))
        wide = (2.0 + 2.0 * i) * self.rows.slack[m]
        null = rows.p[at, t]
        most = (joint[:, 0] * p[at, t] * np.exp(wide) - q[at, t]) / np.maximum(mass - wide, FLOOR)
        for n in np.flatnonzero((null <= 0) & (joint[:, 0] * p[at, t] < q[at, t] * (1 - CLEARLY)))[:1]:
            text = f"token {t[n]}: R p {joint[n, 0] * p[n, t[n]]:.3g}, q {q[n, t[n]]:.3g}: impossible as recovered"
            self.evidence.impossible.append(f"request {b[n] + self.evidence.count}: {text}")
        paid = np.log(np.maximum(most, FLOOR) / np.maximum(null, FLOOR))
        slack[b] += np.clip(np.where(null > 0, paid, 0.0), 0.0, 1.0)
        plain = np.maximum(p - q, 0.0)
        density = {
            "target": p[at, t],
            "token residual": plain[at, t] / np.maximum(plain.sum(1), FLOOR),
            "draft row": q[at, t],
            "excluded": self.rows.targets.outside(m * (self.rows.drafts + 1) + i, t),
        }
        out[:, b] = self._recovered.log_ratios(rows, at, t, density)
        u = self._random.random(len(b))
        self._views[0].add(cells_of(rows.likely_first[at, t], null, u))
        self._views[1].add(cells_of(rows.by_id[at, t], null, u))

    def _add_bonus(self, requests: Requests, out: Array, slack: Array) -> None:
        b = np.flatnonzero(requests.accepted == requests.lengths)
        if not len(b):
            return
        m, i, t = requests.sets[b], requests.lengths[b], requests.last[b]
        r, p = m * (self.rows.drafts + 1) + i, self.rows.p[m, i, t]
        for n in np.flatnonzero(p <= 0)[:1]:
            self.evidence.impossible.append(f"request {b[n] + self.evidence.count}: a bonus token of probability 0")
        slack[b] += self.rows.slack[m]
        density = {
            "last row": np.where(i > 0, self.rows.p[m, np.maximum(i - 1, 0), t], np.nan),
            "first row": np.where(i > 0, self.rows.p[m, 0, t], np.nan),
            "excluded": self.rows.targets.outside(r, t),
        }
        out[:, b] = self._bonus.log_ratios(self.rows.targets, r, t, density)
        u = self._random.random(len(b))
        self._views[2].add(cells_of(self.rows.targets.likely_first[r, t], p, u))

"""Evidence from a sampler's steps when their drafts are known.

Given the drafts, each decision has an exact distribution. Draft d of row i is accepted with probability min(1, p/q),
the token at the first rejection follows max(p - q, 0) over its sum, and the bonus token follows p. One pass over one
stream of requests tests all three.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from verispec.judge._failure import Failure, Kind, Mismatch
from verispec.judge.statistics.bets import AcceptanceBets, TokenBets
from verispec.judge.statistics.evidence import Evidence
from verispec.judge.statistics.places import PlaceView, cells_of, randomiser
from verispec.judge.statistics.rows import FLOOR, Rows

Array = np.ndarray[Any, Any]

FAR = 64
"""Distance of requests at which tiles and warps repeat."""
CLEARLY = 1e-4
"""Relative distance below which p and q count as equal when an outcome is called impossible."""
RELIABILITY_BINS = 10

RECOVERED = (
    "target",
    "other residual",
    "first residual",
    "next residual",
    "draft noise",
    "reused u",
    "neighbour noise",
    "far noise",
    "step noise",
    "neighbour row",
    "unsigned",
    "draft row",
    "excluded",
    "unlimited",
)
BONUS = (
    "last row",
    "first row",
    "bonus residual",
    "neighbour noise",
    "far noise",
    "step noise",
    "neighbour row",
    "excluded",
    "unlimited",
)
ACCEPTANCE = (
    "one u",
    "neighbour u",
    "other q",
    "next q",
    "other p",
    "next p",
    "neighbour row",
    "argmax rule",
    "no ratio",
    "excluded",
    "unlimited",
)


@dataclass(frozen=True)
class RowDistributions:
    """M sets of K draft rows and one bonus row, with the derived distributions.

    Attributes:
        p: [M, K + 1, V] float64 target probabilities under the set's temperature and limits.
        q: [M, K, V] float64 probabilities that the drafts are drawn from; one-hot rows for certain drafts.
        slack: [M] maximum change of log p by the engine's rounding.
        unlimited: [M, K + 1, V] float64 target probabilities before top-k, top-p and min-p; None without limits.
    """

    p: Array
    q: Array
    slack: Array
    unlimited: Array | None = None

    @property
    def drafts(self) -> int:
        """K, the number of draft rows per set."""
        return int(self.q.shape[1])

    @cached_property
    def targets(self) -> Rows:
        """All target rows, [M (K + 1), V]."""
        return Rows(np.ascontiguousarray(self.p.reshape(-1, self.p.shape[2])))

    @cached_property
    def draft_rows(self) -> Rows:
        """Target and draft distributions of all draft rows, [M K, V]."""
        vocabulary = self.p.shape[2]
        return Rows(self.p[:, : self.drafts].reshape(-1, vocabulary), self.q.reshape(-1, vocabulary))

    @cached_property
    def residuals(self) -> Rows:
        """Residuals of all draft rows, [M K, V]."""
        return Rows(self.draft_rows.residual, self.draft_rows.q)

    @cached_property
    def unlimited_residuals(self) -> Array | None:
        """Residuals of a sampler that ignores limits, [M K, V]; None without limits."""
        if self.unlimited is None:
            return None
        vocabulary = self.p.shape[2]
        return Rows(self.unlimited[:, : self.drafts].reshape(-1, vocabulary), self.q.reshape(-1, vocabulary)).residual

    @cached_property
    def unsigned(self) -> Array:
        """|p - q| over its sum, [M K, V]."""
        apart = np.abs(self.draft_rows.p - self.q.reshape(self.draft_rows.p.shape))
        share: Array = apart / np.maximum(apart.sum(1, keepdims=True), FLOOR)
        return share

    @cached_property
    def rejected(self) -> Array:
        """Sum of max(p - q, 0), [M K]."""
        mass: Array = np.maximum(self.draft_rows.p - self.q.reshape(self.draft_rows.p.shape), 0.0).sum(1)
        return mass

    @cached_property
    def above(self) -> Array:
        """Mass of the tokens with p > q, [M K]."""
        p = self.draft_rows.p
        mass: Array = np.where(p > self.q.reshape(p.shape), p, 0.0).sum(1)
        return mass

    @cached_property
    def certain(self) -> bool:
        """True when every draft row has one token of probability 1."""
        return bool((self.q.max(-1) == 1.0).all())


@dataclass(frozen=True)
class Requests:
    """Requests of one batch and the tokens that they emitted.

    Attributes:
        sets: [B] int64, row set of each request.
        lengths: [B] int64, drafts of each request, at most K; its bonus row is row `lengths`.
        drafts: [B, K] int64 draft tokens; columns past a request's length are not read.
        accepted: [B] int64, drafts that were emitted.
        last: [B] int64, the recovered or bonus token.
    """

    sets: Array
    lengths: Array
    drafts: Array
    accepted: Array
    last: Array

    @classmethod
    def of(cls, sets: Array, lengths: Array, drafts: Array, tokens: Sequence[Sequence[int]]) -> Requests:
        """Return the requests with their emitted tokens split into accepted drafts and one token of the target.

        Args:
            sets: [B] row set of each request.
            lengths: [B] drafts of each request.
            drafts: [B, K] draft tokens.
            tokens: emitted tokens of each request, without padding.

        Returns:
            The batch, as `GivenDrafts.add` takes it.

        Raises:
            Mismatch: a request emitted no token, more than its drafts and one, or something else before its last token.
        """
        for b, (emitted, brought, most) in enumerate(zip(tokens, drafts.tolist(), lengths.tolist(), strict=True)):
            count = len(emitted) - 1
            if not 0 <= count <= most or brought[:count] != list(emitted[:-1]):
                message = f"request {b} with drafts {brought[:most]} emitted {list(emitted)}"
                raise Mismatch(Failure(Kind.VALUE, message))
        accepted = np.array([len(emitted) - 1 for emitted in tokens])
        return cls(sets, lengths, drafts, accepted, np.array([emitted[-1] for emitted in tokens]))


class GivenDrafts:
    """Evidence of a stream of steps with known drafts.

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
        names = ("recovered, likely first", "recovered, drafted last", "recovered, by id")
        self._views = [PlaceView(name) for name in names]
        self._bonus_views = [PlaceView("bonus, likely first"), PlaceView("bonus, by id")]
        self._pairs = [PlaceView("recovered, after the neighbour's", paired=True), PlaceView("acceptance")]
        bets = [*self._acceptance.bets, *self._recovered.bets, *self._bonus.bets]
        self.evidence = Evidence(bets, [*self._views, *self._bonus_views, *self._pairs], weight, unit="requests")
        self._random = randomiser(seed)
        self._predicted = np.zeros((3, RELIABILITY_BINS))
        self._before: Requests | None = None

    def add(self, requests: Requests) -> None:
        """Add the evidence of the `requests` of one batch, in the order of the engine's batch."""
        count = len(requests.sets)
        spans = np.cumsum([0, *(len(group.bets) for group in (self._acceptance, self._recovered, self._bonus))])
        ratios = np.zeros((spans[-1], count))
        slack = np.zeros(count)
        self._add_acceptance(requests, ratios[: spans[1]], slack)
        self._add_recovered(requests, ratios[spans[1] : spans[2]], slack)
        self._add_bonus(requests, ratios[spans[2] :], slack)
        self.evidence.add(ratios, count, slack)
        self.evidence.notes["reliability"] = self._predicted.tolist()
        self.evidence.checkpoint()
        self._before = requests

    def _impossible(self, where: Array, b: Array, text: str) -> None:
        for n in np.flatnonzero(where)[:1]:
            self.evidence.impossible.append(f"request {int(b[n]) + self.evidence.count}: {text}")

    def _add_acceptance(self, requests: Requests, out: Array, slack: Array) -> None:
        rows, drafts = self.rows, self.rows.drafts
        least = np.ones(len(requests.sets))
        for i in range(drafts):
            b = np.flatnonzero((requests.accepted >= i) & (requests.lengths > i))
            if not len(b):
                break
            m, d = requests.sets[b], requests.drafts[b, i]
            yes = requests.accepted[b] > i
            p, q = rows.p[m, i, d], np.maximum(rows.q[m, i, d], FLOOR)
            a = np.minimum(1.0, p / q)
            d_slack = rows.slack[m]
            self._impossible(yes & (p <= 0), b, f"a draft of probability 0 was accepted at position {i}")
            clearly = np.maximum(d_slack, CLEARLY)
            self._impossible(~yes & (p > q * (1 + clearly)), b, f"a draft with p > q was rejected at position {i}")
            null, paid = _with_rounding(a, yes, d_slack)
            slack[b] += paid
            others = self._other_rules(requests, i, b, a, least)
            out[:, b] += self._acceptance.log_ratios(a, p / q, null, yes, others)
            self._count_reliability(a, yes)
            place = np.where(yes, self._random.random(len(b)) * a, a + self._random.random(len(b)) * (1 - a))
            self._pairs[1].add(cells_of(place, np.zeros(len(b)), np.zeros(len(b))))
            least[b] = np.where(yes, np.minimum(least[b], a), least[b])

    def _other_rules(self, requests: Requests, i: int, b: Array, a: Array, least: Array) -> dict[str, Array]:
        """Return the acceptance probability [n] of draft i of requests `b` under each fault of `ACCEPTANCE`."""
        rows, drafts = self.rows, self.rows.drafts
        m, d = requests.sets[b], requests.drafts[b, i]
        p, q = rows.p[m, i, d], np.maximum(rows.q[m, i, d], FLOOR)
        nothing = np.full(len(b), np.nan)

        def ratio(numerator: Array, denominator: Array) -> Array:
            return np.minimum(1.0, numerator / np.maximum(denominator, FLOOR))

        neighbour = np.maximum(b - 1, 0)
        has_neighbour = b > 0
        other = requests.sets[neighbour]
        # The neighbour's number is below its own a when it accepted draft i, else above; b itself when it got that far.
        reached = has_neighbour & (requests.accepted[neighbour] >= i) & (requests.lengths[neighbour] > i)
        beside = requests.drafts[neighbour, i]
        theirs = ratio(rows.p[other, i, beside], rows.q[other, i, beside])
        took = requests.accepted[neighbour] > i
        below = np.minimum(1.0, a / np.maximum(theirs, FLOOR))
        above = np.maximum(0.0, a - theirs) / np.maximum(1.0 - theirs, FLOOR)
        return {
            "one u": ratio(a, least[b]) if i else nothing,
            "neighbour u": np.where(reached, np.where(took, below, above), np.nan),
            "other q": ratio(p, rows.q[m, i - 1, d]) if i and not rows.certain else nothing,
            "next q": ratio(p, rows.q[m, i + 1, d]) if i + 1 < drafts and not rows.certain else nothing,
            "other p": ratio(rows.p[m, i - 1, d], q) if i else nothing,
            "next p": ratio(rows.p[m, i + 1, d], q),
            "neighbour row": np.where(has_neighbour, ratio(rows.p[other, i, d], q), np.nan),
            "argmax rule": (d == rows.targets.top[m * (drafts + 1) + i]).astype(np.float64),
            "no ratio": p,
            "excluded": np.where(p <= 0, 1.0, a),
            "unlimited": nothing if rows.unlimited is None else ratio(rows.unlimited[m, i, d], q),
        }

    def _count_reliability(self, a: Array, yes: Array) -> None:
        bins = np.minimum((a * RELIABILITY_BINS).astype(np.int64), RELIABILITY_BINS - 1)
        for k, weight in enumerate((np.ones(len(a)), yes.astype(np.float64), a)):
            self._predicted[k] += np.bincount(bins, weight, RELIABILITY_BINS)

    def _add_recovered(self, requests: Requests, out: Array, slack: Array) -> None:
        rows, drafts = self.rows, self.rows.drafts
        b = np.flatnonzero(requests.accepted < requests.lengths)
        if not len(b):
            return
        m, i, t = requests.sets[b], requests.accepted[b], requests.last[b]
        r = m * drafts + i
        p, q, d_slack = rows.p[m, i, t], rows.q[m, i, t], rows.slack[m]
        impossible = (p <= 0) | (p < q * (1 - np.maximum(d_slack, CLEARLY)))
        for n in np.flatnonzero(impossible)[:1]:
            text = f"token {t[n]}: p {p[n]:.3g}, q {q[n]:.3g}: impossible as a recovered token"
            self._impossible(np.arange(len(b)) == n, b, text)
        # Rounding moves p by a factor e^slack at most, and so the residual and its sum.
        most = np.maximum(p * np.exp(d_slack) - q, 0.0)
        least = np.maximum(rows.rejected[r] - d_slack * rows.above[r], FLOOR)
        null = np.maximum(rows.residuals.p[r, t], FLOOR)
        paid = np.where(impossible, 0.0, np.maximum(np.log(np.maximum(most / least, FLOOR) / null), 0.0))
        slack[b] += np.minimum(paid, 1.0)
        density = {
            "target": rows.draft_rows.p[r, t],
            "other residual": np.where(i > 0, rows.residuals.p[np.maximum(r - 1, 0), t], np.nan),
            "first residual": np.where(i > 0, rows.residuals.p[m * drafts, t], np.nan),
            "next residual": np.where(
                i + 1 < drafts, rows.residuals.p[np.minimum(r + 1, len(rows.residuals.p) - 1), t], np.nan
            ),
            "draft noise": rows.draft_rows.shared_noise[r, t],
            "reused u": self._quantile_of_u(requests, b, r, t),
            "unsigned": rows.unsigned[r, t],
            "draft row": q,
            "excluded": rows.draft_rows.outside(r, t),
            "unlimited": _at(rows.unlimited_residuals, r, t),
            "neighbour row": self._neighbours(requests, b, rows.residuals.p, drafts, i, t),
            **self._same_token(requests, b, t),
        }
        out[:, b] = self._recovered.log_ratios(rows.residuals, r, t, density, rows.draft_rows)
        uniform = self._random.random(len(b))
        residual = rows.residuals
        for view, before in zip(
            self._views, (residual.likely_first, residual.drafted_last, residual.by_id), strict=True
        ):
            cells = cells_of(before[r, t], residual.p[r, t], uniform)
            view.add(cells)
            if view is self._views[0]:
                neighbours = np.diff(b) == 1
                self._pairs[0].add(cells[1:][neighbours], cells[:-1][neighbours])

    def _add_bonus(self, requests: Requests, out: Array, slack: Array) -> None:
        rows, drafts = self.rows, self.rows.drafts
        b = np.flatnonzero(requests.accepted == requests.lengths)
        if not len(b):
            return
        m, i, t = requests.sets[b], requests.lengths[b], requests.last[b]
        r = m * (drafts + 1) + i
        p = rows.p[m, i, t]
        self._impossible(p <= 0, b, "a bonus token of probability 0")
        slack[b] += rows.slack[m]
        last = np.maximum(i - 1, 0)
        density = {
            "last row": np.where(i > 0, rows.p[m, last, t], np.nan),
            "first row": np.where(i > 0, rows.p[m, 0, t], np.nan),
            "bonus residual": np.where(i > 0, rows.residuals.p[m * drafts + last, t], np.nan),
            "excluded": rows.targets.outside(r, t),
            "unlimited": _at(rows.unlimited, m, i, t),
            "neighbour row": self._neighbours(requests, b, rows.targets.p, drafts + 1, i, t),
            **self._same_token(requests, b, t),
        }
        out[:, b] = self._bonus.log_ratios(rows.targets, r, t, density)
        uniform = self._random.random(len(b))
        for view, before in zip(self._bonus_views, (rows.targets.likely_first, rows.targets.by_id), strict=True):
            view.add(cells_of(before[r, t], p, uniform))

    def _quantile_of_u(self, requests: Requests, b: Array, r: Array, t: Array) -> Array:
        """Return the density of the residual's quantile at u, which is uniform above a once the draft was rejected."""
        m, i = requests.sets[b], requests.accepted[b]
        d = requests.drafts[b, i]
        rows = self.rows
        a = np.minimum(1.0, rows.p[m, i, d] / np.maximum(rows.q[m, i, d], FLOOR))
        start = rows.residuals.by_id[r, t]
        end = start + rows.residuals.p[r, t]
        density: Array = np.maximum(end - np.maximum(start, a), 0.0) / np.maximum(1.0 - a, FLOOR)
        return density

    @staticmethod
    def _neighbours(requests: Requests, b: Array, rows: Array, stride: int, i: Array, t: Array) -> Array:
        other = requests.sets[np.maximum(b - 1, 0)]
        return np.where(b > 0, rows[other * stride + i, t], np.nan)

    def _same_token(self, requests: Requests, b: Array, t: Array) -> dict[str, Array]:
        """Compare each token with that of an earlier request with the same row, for each way to share noise.

        Returns:
            [n] per fault: 1 where the tokens are equal, 0 where they differ, NaN without such a request.
        """

        def against(earlier: Requests, at: Array) -> Array:
            valid = (at >= 0) & (at < len(earlier.sets))
            at = np.clip(at, 0, len(earlier.sets) - 1)
            same_row = (
                valid
                & (earlier.sets[at] == requests.sets[b])
                & (earlier.accepted[at] == requests.accepted[b])
                & ((earlier.accepted[at] == earlier.lengths[at]) == (requests.accepted[b] == requests.lengths[b]))
            )
            return np.where(same_row, (earlier.last[at] == t).astype(np.float64), np.nan)

        before = self._before
        return {
            "neighbour noise": against(requests, b - 1),
            "far noise": against(requests, b - FAR),
            "step noise": np.full(len(b), np.nan) if before is None else against(before, b),
        }


def _at(table: Array | None, *index: Array) -> Array:
    """Return the entries of a table, or NaN without one."""
    chosen: Array = np.full(len(index[0]), np.nan) if table is None else table[index]
    return chosen


def _with_rounding(a: Array, yes: Array, slack: Array) -> tuple[Array, Array]:
    """Return the probability of each decision, and the log of how much rounding may raise it.

    A rejection has probability 1 - a, which may be as large as 1 - a e^-slack; where a is 1 that bound is the
    probability.
    """
    most = np.maximum(1.0 - a * np.exp(-slack), FLOOR)
    rejected = np.where(a < 1, np.maximum(1.0 - a, FLOOR), most)
    null = np.where(yes, a, rejected)
    paid = np.where(yes, np.minimum(slack, -np.log(np.maximum(a, FLOOR))), np.log(most / rejected))
    return null, np.maximum(paid, 0.0)

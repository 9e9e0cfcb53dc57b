"""Log-likelihood ratios of bets: log f(outcome) - log p(outcome), a row per bet and a column per outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verispec.judge.statistics.faults import FAULTS, bets
from verispec.judge.statistics.rows import FLOOR, Rows

Array = np.ndarray[Any, Any]

RUIN = -40.0
"""Least log ratio of an outcome, so that one outcome never turns a capital into minus infinity."""
STRANGE = 1e-7
"""Probability at which an outcome that p excludes counts in capitals. It fails the test on its own; for the name of the
fault it is one hint, which must not outweigh all other outcomes."""
CERTAIN = 0.99
"""Share of bets on thresholds: a tail that is lost may still be drawn now and then."""
GAINS = {1e-3: 0.03, 1e-4: 0.01, 1e-5: 0.003, 1e-6: 0.001, 1e-7: 0.0003, 3e-8: 0.0003}
"""Share of tokens that a bet moves into the tail below each limit."""


def log_mixtures(sizes: Sequence[float], ratio: Array) -> list[Array]:
    """Return log((1 - s) + s ratio), [n] float64, for every share s.

    Args:
        sizes: the shares, from 0 to 1.
        ratio: [n] probability under the fault over that under the null.
    """
    return [np.log(np.maximum(1.0 - s + s * ratio, np.exp(RUIN))) for s in sizes]


def _counted(p: Array) -> Array:
    """Return probabilities [n] of outcomes as capitals count them; impossible ones have at most `FLOOR`."""
    return np.where(p > FLOOR, p, STRANGE)


class TailBets:
    """Bets on the unlikely tokens of known rows, alone where a row tells nothing else, such as one of needles.

    Args:
        where: the kind of token, e.g. "bonus token".
    """

    OWN = ("tail lost", "tail gained")

    def __init__(self, where: str) -> None:
        self.bets = bets(where, self.OWN)

    def log_ratios(self, rows: Rows, r: Array, t: Array) -> Array:
        """Return the log ratios of drawn tokens, log(f/p) [bets, n].

        Args:
            rows: distributions p [R, V].
            r: [n] row of each token.
            t: [n] token ids.
        """
        p, possible = _counted(rows.p[r, t]), rows.p[r, t] > 0
        out: list[Array] = []
        for limit in FAULTS["tail lost"].sizes:
            mass = rows.tail(limit)[r]
            kept = np.where((mass > 0) & (mass < 1), np.where(p >= limit, 1.0 / np.maximum(1 - mass, FLOOR), 0.0), 1.0)
            out += log_mixtures((CERTAIN,), kept)
        for limit in FAULTS["tail gained"].sizes:
            mass = rows.tail(limit)[r]
            # An excluded token belongs to no tail.
            inside = np.where(p < limit, 1.0 / np.maximum(mass, FLOOR), 0.0)
            more = np.where(possible & (mass > 0) & (mass < 1), inside, 1.0)
            out += log_mixtures((GAINS[limit],), more)
        return np.array(out)


class TokenBets:
    """Bets on a token that is drawn from known rows.

    Args:
        where: the kind of token, e.g. "bonus token".
        extra: faults whose density the caller gives with each outcome, see `log_ratios`.
    """

    OWN = ("greedy", "temperature")
    ENDS = ("first lost", "last lost")

    def __init__(self, where: str, extra: tuple[str, ...] = ()) -> None:
        self.extra = extra
        self._tails = TailBets(where)
        self.bets = bets(where, self.OWN) + self._tails.bets + bets(where, self.ENDS) + bets(where, extra)

    def log_ratios(
        self, rows: Rows, r: Array, t: Array, extra: Mapping[str, Array], target: Rows | None = None
    ) -> Array:
        """Return log(f/p) [bets, n] of tokens `t` [n] drawn in rows `r` [n].

        Args:
            rows: the distributions p.
            r: row of each token.
            t: the tokens.
            extra: density f(t) [n] of each fault in `extra`; NaN where the fault says nothing of an outcome.
            target: p and q of the target where `rows` are residuals; a wrong temperature is one of the target.
        """
        p, possible = _counted(rows.p[r, t]), rows.p[r, t] > 0
        out = log_mixtures(FAULTS["greedy"].sizes, np.where(t == rows.top[r], 1.0 / rows.top_p[r], 0.0))
        log_p = np.log(p)
        for factor in FAULTS["temperature"].sizes:
            if target is not None:
                out += log_mixtures((CERTAIN,), target.tempered_residual(1.0 / factor, r, t) / p)
                continue
            # No temperature draws an excluded token.
            out.append(np.where(possible, (1.0 / factor - 1.0) * log_p - np.log(rows.norm(1.0 / factor)[r]), 0.0))
        out += list(self._tails.log_ratios(rows, r, t))
        ends = (0, rows.behind_first[r]), (rows.p.shape[1] - 1, rows.before_last[r])
        for key, (end, mass) in zip(self.ENDS, ends, strict=True):
            others = np.where(t == end, 0.0, 1.0 / np.maximum(mass, FLOOR))
            out += log_mixtures(FAULTS[key].sizes, np.where(mass > 0, others, 1.0))
        for key in self.extra:
            density = extra[key]
            out += log_mixtures(FAULTS[key].sizes, np.where(np.isnan(density), 1.0, density / p))
        return np.array(out)


class TextBets(TokenBets):
    """Bets on tokens of a text alone: where a token was drafted, accepted or recovered is not known.

    With `drafted`, `rows.q` holds the drafts' distribution at every place.
    """

    DRAFTED = ("target", "kept", "ratio", "draft noise")

    def __init__(self, drafted: bool, extra: tuple[str, ...] = ()) -> None:
        super().__init__("token", extra)
        self._drafted = drafted
        if drafted:
            self.bets += bets("token", self.DRAFTED)

    def log_ratios(
        self, rows: Rows, r: Array, t: Array, extra: Mapping[str, Array], target: Rows | None = None
    ) -> Array:
        """Return the log ratios of the target's bets, and of those that need the draft's distribution.

        Args:
            rows: distributions p and q.
            r: [n] row of each token.
            t: [n] token ids.
            extra: densities [n] of further faults, by name; NaN without a bet.
            target: target of `TokenBets.log_ratios`.

        Returns:
            [bets, n] float64.
        """
        own = super().log_ratios(rows, r, t, extra, target)
        if not self._drafted:
            return own
        assert rows.q is not None
        p, q = _counted(rows.p[r, t]), rows.q[r, t]
        overlap = rows.overlap[r]
        out = log_mixtures(FAULTS["target"].sizes, np.minimum(1.0, q / p) + 1.0 - overlap)
        out += log_mixtures(FAULTS["kept"].sizes, q / p)
        rest, mass = np.maximum(1.0 - q / p, 0.0), rows.rest[r]
        for factor in FAULTS["ratio"].sizes:
            lost = np.where(mass > 0, (1.0 - rows.scaled_overlap(factor)[r]) / np.maximum(mass, FLOOR), 0.0)
            out.append(np.log(np.maximum(np.minimum(q / p, factor) + lost * rest, np.exp(RUIN))))
        recovered = rows.shared_noise[r, t]
        out += log_mixtures(FAULTS["draft noise"].sizes, np.minimum(1.0, q / p) + (1.0 - overlap) * recovered / p)
        return np.concatenate([own, np.array(out)])


class AcceptanceBets:
    """Bets on the decision about one draft, which is accepted with probability a = min(1, p/q).

    `extra` names faults whose own acceptance probability the caller gives with each decision.
    """

    OWN = ("ratio", "kept", "dropped", "few bits")

    def __init__(self, extra: tuple[str, ...]) -> None:
        self.extra = extra
        self.bets = bets("acceptance", self.OWN + extra)

    def log_ratios(self, a: Array, ratio: Array, null: Array, accepted: Array, extra: Mapping[str, Array]) -> Array:
        """Return log(f/p) [bets, n].

        Args:
            a: [n] probabilities of acceptance.
            ratio: [n] p/q, which may exceed 1.
            null: [n] probability of the decision; above 0 for a rejection that rounding alone explains.
            accepted: [n] bool.
            extra: [n] acceptance probability under each fault in `extra`; NaN where it says nothing.
        """
        size = {key: FAULTS[key].sizes for key in (*self.OWN, *self.extra)}
        under = [CERTAIN * np.minimum(1.0, factor * ratio) + (1 - CERTAIN) * a for factor in size["ratio"]]
        under += [a + share * (1.0 - a) for share in size["kept"]]
        under += [a * (1.0 - share) for share in size["dropped"]]
        under += [CERTAIN * np.ceil(a * 2.0**bits) / 2.0**bits + (1 - CERTAIN) * a for bits in size["few bits"]]
        for key in self.extra:
            other = np.where(np.isnan(extra[key]), a, extra[key])
            under += [share * other + (1.0 - share) * a for share in size[key]]
        f = np.array(under)
        decided = np.where(accepted, f, 1.0 - f)
        logs: Array = np.log(np.maximum(decided, FLOOR)) - np.log(_counted(null))
        return np.maximum(logs, RUIN)

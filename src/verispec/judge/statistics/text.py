"""Evidence from emitted text, for any lossless engine, and from its steps where the engine reports them.

Text alone: every token follows p given all before it, whatever was drafted. Where steps are known, a verified place is
accepted with probability sum(min(p, q)). A recovered token follows the residual, and a bonus token p. Both kinds of
evidence use the same tokens; the mean of their capitals is evidence too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.judge.statistics.bets import AcceptanceBets, TextBets, TokenBets
from verispec.judge.statistics.evidence import Evidence
from verispec.judge.statistics.places import PlaceView, cells_of, randomiser
from verispec.judge.statistics.rows import FLOOR, Rows

Array = np.ndarray[Any, Any]

PLAIN, ACCEPTED, RECOVERED = 0, 1, 2
"""Kinds of a token: drawn from the target alone, a draft token that was accepted, and the one after a rejection."""

EXTRA = ("neighbour noise", "step noise", "excluded")
RESIDUAL = ("target", "draft noise", "draft row")


class GivenText:
    """Evidence of a stream of texts.

    Args:
        weight: part of the run's budget.
        seed: seed of the randomised places.
        drafted: True if the drafts' distributions are known.
    """

    def __init__(self, weight: float, seed: int, drafted: bool) -> None:
        self._drafted = drafted
        self._text = TextBets(drafted, EXTRA)
        self._accept = AcceptanceBets(())
        self._recovered = TokenBets("recovered token", RESIDUAL)
        self._views = [PlaceView("likely first"), PlaceView("by id"), PlaceView("after the token before", paired=True)]
        if drafted:
            self._views.append(PlaceView("drafted last"))
        bets = list(self._text.bets)
        if drafted:
            bets += [*self._accept.bets, *self._recovered.bets]
        self.evidence = Evidence(bets, self._views, weight)
        self._random = randomiser(seed)

    def add(
        self,
        rows: Rows,
        r: Array,
        tokens: Array,
        kinds: Array | None = None,
        verified: Array | None = None,
        *,
        slack: float = 0.0,
        neighbour: Array | None = None,
        before: Array | None = None,
    ) -> None:
        """Add the evidence of the tokens of one text, in order.

        Args:
            rows: distributions p, and q where drafts are known.
            r: [n] row of each token.
            tokens: [n] emitted token ids.
            kinds: [n] of `PLAIN`, `ACCEPTED`, `RECOVERED`; None where steps are unknown.
            verified: [n] bool, True where a draft token was verified at this place; with `kinds`.
            slack: maximum change of log p by the engine's rounding.
            neighbour: [n] token of a neighbour in the batch with the same row at the same time; -1 without one.
            before: [n] token of the same text in the step before, with the same row; -1 without one.
        """
        p = rows.p[r, tokens]
        for place in np.flatnonzero(p <= 0)[:1]:
            text = f"token {tokens[place]} at position {place} has probability 0"
            self.evidence.impossible.append(f"{text}; token {self.evidence.count + int(place)} of the test")
        nothing = np.full(len(tokens), np.nan)

        def same(other: Array | None) -> Array:
            return nothing if other is None else np.where(other < 0, np.nan, (other == tokens).astype(np.float64))

        extra = {
            "neighbour noise": same(neighbour),
            "step noise": same(before),
            "excluded": rows.outside(r, tokens),
        }
        groups = [self._text.log_ratios(rows, r, tokens, extra)]
        paid = np.full(len(tokens), slack)
        if self._drafted:
            groups += self._steps(rows, r, tokens, kinds, verified, slack, paid)
        self.evidence.add(np.concatenate(groups), len(tokens), paid)
        self._count_places(rows, r, tokens)
        self.evidence.checkpoint()

    def _steps(
        self,
        rows: Rows,
        r: Array,
        tokens: Array,
        kinds: Array | None,
        verified: Array | None,
        slack: float,
        paid: Array,
    ) -> list[Array]:
        """Return the log ratios of acceptance and of recovered tokens; zeros where steps are unknown."""
        accept = np.zeros((len(self._accept.bets), len(tokens)))
        recovered = np.zeros((len(self._recovered.bets), len(tokens)))
        if kinds is None or verified is None:
            return [accept, recovered]
        at = np.flatnonzero(verified)
        if len(at):
            a, yes = rows.overlap[r[at]], kinds[at] == ACCEPTED
            exact = np.where(yes, a, 1.0 - a)
            null = np.maximum(exact, max(slack, FLOOR))
            accept[:, at] = self._accept.log_ratios(a, a, null, yes, {})
            paid[at] = np.maximum(paid[at], np.log(np.minimum(null + slack, 1.0) / null))
        at = np.flatnonzero(kinds == RECOVERED)
        if len(at):
            self._add_recovered(rows, r[at], tokens[at], at, recovered, slack, paid)
        return [accept, recovered]

    def _add_recovered(self, rows: Rows, r: Array, t: Array, at: Array, out: Array, slack: float, paid: Array) -> None:
        assert rows.q is not None
        residual = Rows(rows.residual, rows.q)
        p, q = rows.p[r, t], rows.q[r, t]
        for n in np.flatnonzero(p < q * (1 - max(2 * slack, 1e-4)))[:1]:
            text = f"token {t[n]}: p {p[n]:.3g}, q {q[n]:.3g}: impossible as a recovered token"
            self.evidence.impossible.append(f"{text}; token {self.evidence.count + int(at[n])} of the test")
        density = {"target": p, "draft noise": rows.shared_noise[r, t], "draft row": q}
        out[:, at] = self._recovered.log_ratios(residual, r, t, density, rows)
        mass = np.maximum(1.0 - rows.overlap[r] - slack, FLOOR)
        most = np.maximum(p * np.exp(slack) - q * np.exp(-slack), FLOOR) / mass
        null = residual.p[r, t]
        paid[at] += np.clip(np.where(null > 0, np.log(most / np.maximum(null, FLOOR)), 0.0), 0.0, 1.0)

    def _count_places(self, rows: Rows, r: Array, tokens: Array) -> None:
        p, uniform = rows.p[r, tokens], self._random.random(len(tokens))
        cells = cells_of(rows.before_likely_first(r, tokens), p, uniform)
        self._views[0].add(cells)
        self._views[1].add(cells_of(rows.by_id[r, tokens], p, uniform))
        self._views[2].add(cells[1:], cells[:-1])
        if self._drafted:
            self._views[3].add(cells_of(rows.before_drafted_last(r, tokens), p, uniform))


def kinds_of(steps: Any, length: int) -> tuple[Array, Array]:
    """Return the kind of each emitted token, and a mask of the verified places.

    Args:
        steps: verifications of one request, in order, with `drafted` and `accepted`; the last may reach past the text.
        length: number of emitted tokens.

    Returns:
        Kinds, [length] int64, and the mask, [length] bool.
    """
    kinds, verified = np.zeros(length, np.int64), np.zeros(length, bool)
    place = 0
    for step in steps:
        for i in range(step.accepted + 1):
            if place + i >= length:
                break
            rejected = i == step.accepted and step.accepted < step.drafted
            kinds[place + i] = ACCEPTED if i < step.accepted else RECOVERED if rejected else PLAIN
            verified[place + i] = i < step.accepted or rejected
        place += step.accepted + 1
    return kinds, verified

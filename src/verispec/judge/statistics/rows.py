"""Rows of exact probabilities, with the constants that bets need, computed once per row."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from verispec.judge.statistics.places import cumulative_before, mass_before

Array = np.ndarray[Any, Any]

FLOOR = 1e-12
"""Probability at which an impossible token counts when explanations are ranked; it fails on its own."""
EQUAL = 1e-5
"""Relative distance of p and q that rounding of the logits explains: no residual, and no fault, is read from it."""


class Rows:
    """Distributions p [R, V] in float64 and, where drafts are drawn, q [R, V].

    Args:
        p: probabilities that tokens are drawn from; each row sums to 1.
        q: probabilities that the drafts of these rows are drawn from.
    """

    def __init__(self, p: Array, q: Array | None = None) -> None:
        self.p, self.q = p, q
        self._norms: dict[float, Array] = {}
        self._tails: dict[float, Array] = {}
        self._tempered_rests: dict[float, Array] = {}

    @cached_property
    def top(self) -> Array:
        """Most likely token, [R]."""
        top: Array = self.p.argmax(1)
        return top

    @cached_property
    def top_p(self) -> Array:
        """Its probability, [R]."""
        largest: Array = self.p.max(1)
        return largest

    @cached_property
    def excluded(self) -> Array:
        """Number of tokens of probability 0, [R]."""
        number: Array = (self.p <= 0).sum(1)
        return number

    def outside(self, r: Array, t: Array) -> Array:
        """Return the density [n] of tokens `t` [n] when an excluded token of row `r` [n] is drawn; NaN without any."""
        number = self.excluded[r]
        return np.where(number > 0, (self.p[r, t] <= 0) / np.maximum(number, 1), np.nan)

    @cached_property
    def _log_p(self) -> Array:
        with np.errstate(divide="ignore"):
            logs: Array = np.log(self.p)
        return logs

    def _raised(self, power: float) -> Array:
        """Return p^`power`, [R, V] float64, faster than numpy's own power."""
        raised: Array = power * self._log_p
        return np.exp(raised, out=raised)

    def norm(self, power: float) -> Array:
        """Return the sum of p^`power` over the possible tokens, [R] float64."""
        if power not in self._norms:
            raised = self._raised(power)
            self._norms[power] = raised.sum(1)
            if self.q is not None:  # a residual will ask for it, and raising takes most of the time
                tempered = raised / self._norms[power][:, None]
                np.subtract(tempered, self.q, out=tempered)
                self._tempered_rests[power] = np.maximum(tempered, 0.0, out=tempered).sum(1)
        return self._norms[power]

    def tail(self, below: float) -> Array:
        """Return the mass of the tokens less likely than `below`, [R] float64."""
        if below not in self._tails:
            self._tails[below] = np.where(self.p < below, self.p, 0.0).sum(1)
        return self._tails[below]

    @cached_property
    def behind_first(self) -> Array:
        """Mass of all tokens but token 0, [R]: summed, since 1 - p(0) has no digits left where p(0) is close to 1."""
        others: Array = self.p[:, 1:].sum(1)
        return others

    @cached_property
    def before_last(self) -> Array:
        """Mass of all tokens but the last one, [R], summed like `behind_first`."""
        others: Array = self.p[:, :-1].sum(1)
        return others

    @cached_property
    def overlap(self) -> Array:
        """Sum of min(p, q), [R]: how often a draft is accepted."""
        assert self.q is not None
        shared: Array = np.minimum(self.p, self.q).sum(1)
        return shared

    @cached_property
    def rest(self) -> Array:
        """Sum of max(p - q, 0), [R]: how often a draft is rejected, summed like `behind_first`."""
        assert self.q is not None
        more: Array = np.maximum(self.p - self.q, 0.0).sum(1)
        return more

    def scaled_overlap(self, factor: float) -> Array:
        """Return the sum of min(q, `factor` p), [R] float64."""
        assert self.q is not None
        shared: Array = np.minimum(self.q, factor * self.p).sum(1)
        return shared

    def tempered_residual(self, power: float, r: Array, t: Array) -> Array:
        """Return the density of the residual for a target of p^power over its sum.

        Args:
            power: inverse temperature that the fault applies to p.
            r: [n] row of each token.
            t: [n] token ids.

        Returns:
            [n] float64, max(target - q, 0) over its sum.
        """
        assert self.q is not None
        tempered = np.exp(power * self._log_p[r, t]) / self.norm(power)[r]
        rest = np.maximum(tempered - self.q[r, t], 0.0)
        density: Array = rest / np.maximum(self._tempered_rests[power][r], FLOOR)
        return density

    @cached_property
    def residual(self) -> Array:
        """max(p - q, 0) over its sum, 0 where p and q are `EQUAL`, [R, V]; p where they are equal everywhere."""
        assert self.q is not None
        rest = np.where(self.p > self.q * (1.0 + EQUAL), self.p - self.q, 0.0)
        mass = rest.sum(1, keepdims=True)
        return np.where(mass > 0, rest / np.maximum(mass, 1e-300), self.p)

    @cached_property
    def likely_first(self) -> Array:
        """Mass before each token, the most likely first, [R, V]."""
        return cumulative_before(self.p, -self.p)

    @cached_property
    def drafted_last(self) -> Array:
        """Mass before each token in order of rising q/p, [R, V]."""
        return cumulative_before(self.p, self._drafted)

    @cached_property
    def _drafted(self) -> Array:
        """q/p, infinite for tokens that p excludes, [R, V]."""
        assert self.q is not None
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.p > 0, self.q / self.p, np.inf)

    def before_likely_first(self, r: Array, t: Array) -> Array:
        """Return `likely_first[r, t]` [n], without a sort where no row is read twice."""
        return mass_before(self.p[r], -self.p[r], t) if self._are_read_once(r) else self.likely_first[r, t]

    def before_drafted_last(self, r: Array, t: Array) -> Array:
        """Return `drafted_last[r, t]` [n], without a sort where no row is read twice."""
        return mass_before(self.p[r], self._drafted[r], t) if self._are_read_once(r) else self.drafted_last[r, t]

    def _are_read_once(self, r: Array) -> bool:
        """Return True if `r` names every row once, in order: then these rows belong to one text."""
        return len(r) == len(self.p) and bool((r == np.arange(len(r))).all())

    @cached_property
    def by_id(self) -> Array:
        """Mass before each token in order of its id, [R, V]."""
        before: Array = np.cumsum(self.p, 1) - self.p
        return before

    @cached_property
    def shared_noise(self) -> Array:
        """Distribution of the recovered token when draft and recovery share their exponential noise, [R, V]."""
        assert self.q is not None
        return np.stack([shared_noise_row(r, q) for r, q in zip(self.residual, self.q, strict=True)])


def shared_noise_row(second: Array, first: Array) -> Array:
    """Return the distribution of argmin E/second given argmin E/first, for a first token with second = 0.

    E are exponentials, one per token. Given the smallest M = E/first, the others are M first + fresh exponentials. With
    c = first/second and H(s) = sum second (s - c)+, averaging over M gives f(t) = second(t) times the integral of
    (1 + H)^-2 from c(t) on. H is linear between the sorted c, so each piece of the integral is elementary.

    Args:
        second: [V] weights of the later draw.
        first: [V] weights of the earlier draw.
    """
    at = np.flatnonzero(second > 0)
    weight = second[at] / second[at].sum()
    c = first[at] / weight
    order = np.argsort(c)
    c, weight = c[order], weight[order]
    slope = np.cumsum(weight)
    rise = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(c))])
    inverse = 1.0 / (1.0 + rise)
    piece = (inverse - np.append(inverse[1:], 0.0)) / slope
    beyond = np.cumsum(piece[::-1])[::-1]
    out = np.zeros(len(second))
    out[at[order]] = weight * beyond
    return out

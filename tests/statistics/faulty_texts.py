"""Texts, blocks, decisions and needles of simulated engines with one fault each, or none."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.cases.row_sets import RowSets
from verispec.judge.statistics.given_drafts import Requests
from verispec.judge.statistics.rows import Rows
from verispec.judge.statistics.text import ACCEPTED, PLAIN, RECOVERED

Array = np.ndarray[Any, Any]


class Drawer:
    """Draws tokens from weights [R, V], whose cumulative sums are kept as one ascending array."""

    def __init__(self, weights: Array) -> None:
        cumulative = np.cumsum(weights, 1)
        self._flat = (cumulative / cumulative[:, -1:] + np.arange(len(weights))[:, None]).ravel()
        self._vocab = weights.shape[1]

    def __call__(self, rng: np.random.Generator, r: Array) -> Array:
        """Draw a token from each of the rows `r` [n]."""
        found = np.searchsorted(self._flat, r + rng.random(len(r)), side="right") - r * self._vocab
        return np.minimum(found, self._vocab - 1)


class SimulatedTexts:
    """Writes texts whose next token depends on the last one modulo the number of rows.

    Args:
        rows: p and q of every state.
        drafts: K drafts per step; 0 decodes plainly.
        fault: "" is correct.
    """

    def __init__(self, rows: Rows, drafts: int, fault: str = "") -> None:
        assert rows.q is not None
        self.drafts, self.fault = drafts, fault
        self.p, self.q = rows.p, rows.q
        self._some_excluded = (rows.p <= 0).any(1)
        self._draw_excluded = Drawer((rows.p <= 0) + 1e-300)
        which, _, size = fault.partition(" ")
        if which == "temperature":
            self.p = self.p ** (1 / float(size))
        if which == "tail":
            self.p = np.where(self.p >= float(size), self.p, 0.0)
        self.p = self.p / self.p.sum(1, keepdims=True)
        rest = np.maximum(self.p - self.q, 0.0)
        self.residual = rest / rest.sum(1, keepdims=True)
        self.recovered = self.residual
        if fault == "target":
            self.recovered = self.p
        elif fault == "draft noise":
            self.recovered = rows.shared_noise
        elif fault == "recovered greedy":
            self.recovered = np.eye(rows.p.shape[1])[self.residual.argmax(1)]
        self._draw_draft, self._draw_own, self._draw_other = (Drawer(w) for w in (self.q, self.p, self.recovered))

    def __call__(self, rng: np.random.Generator, texts: int, length: int) -> tuple[Array, Array, Array, Array]:
        """Return states, tokens, kinds and verified places, each [texts, length]."""
        which, _, size = self.fault.partition(" ")
        states, tokens, kinds = (np.zeros((texts, length), np.int64) for _ in range(3))
        verified = np.zeros((texts, length), bool)
        state, place = rng.integers(0, len(self.p), texts), np.zeros(texts, np.int64)
        for n in range(length):
            d = self._draw_draft(rng, state)
            ratio = self.p[state, d] / self.q[state, d] * (float(size) if which == "ratio" else 1.0)
            yes = rng.random(texts) < ratio
            if which == "kept":
                yes |= rng.random(texts) < float(size)
            drafted = place < self.drafts
            own, other = self._draw_own(rng, state), self._draw_other(rng, state)
            if which == "greedy":
                spoilt = rng.random(texts) < float(size)
                own = np.where(spoilt, self.p[state].argmax(1), own)
                other = np.where(spoilt, self.recovered[state].argmax(1), other)
            token = np.where(drafted, np.where(yes, d, other), own)
            if which == "excluded":
                spoilt = self._some_excluded[state] & (rng.random(texts) < float(size))
                token = np.where(spoilt, self._draw_excluded(rng, state), token)
            states[:, n], tokens[:, n], verified[:, n] = state, token, drafted
            kinds[:, n] = np.where(drafted, np.where(yes, ACCEPTED, RECOVERED), PLAIN)
            place = np.where(drafted & yes, place + 1, 0)
            state = token % len(self.p)
        return states, tokens, kinds, verified


class SimulatedBlocks:
    """Verifies blocks (Sun et al. 2024, algorithm 2) of requests of `sets`; "" is correct."""

    def __init__(self, sets: RowSets, fault: str = "") -> None:
        self.rows, self.fault = sets, fault

    def __call__(self, rng: np.random.Generator, sets: Array, lengths: Array, drafts: Array) -> Requests:
        p, q, count = self.rows.p, self.rows.q, len(sets)
        joint, accepted, kept = np.ones(count), np.zeros(count, np.int64), np.ones(count)
        for i in range(self.rows.drafts):
            d = drafts[:, i]
            joint = np.minimum(joint * p[sets, i, d] / np.maximum(q[sets, i, d], 1e-300), 1.0)
            h = joint.copy()
            inner = np.flatnonzero(lengths > i + 1)
            after = min(i + 1, self.rows.drafts - 1)
            rest = np.maximum(joint[inner, None] * p[sets[inner], i + 1] - q[sets[inner], after], 0.0).sum(1)
            total = rest + 1.0 - joint[inner]
            h[inner] = np.where(total > 0, rest / np.where(total > 0, total, 1.0), 1.0)
            if self.fault == "block h 1.05":
                h = 1.05 * h
            passed = (lengths > i) & (rng.random(count) < h)
            accepted, kept = np.where(passed, i + 1, accepted), np.where(passed, joint, kept)
        rejected = accepted < lengths
        row = np.minimum(accepted, self.rows.drafts - 1)
        rest = np.maximum(kept[:, None] * p[sets, accepted] - q[sets, row], 0.0)
        if self.fault == "block target":
            rest = p[sets, accepted]
        weights = np.where(rejected[:, None], rest, p[sets, accepted])
        last = Drawer(weights)(rng, np.arange(count))
        return Requests(sets, lengths, drafts, accepted, last)

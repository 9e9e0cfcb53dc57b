"""Samplers with one fault each, as simulations over row sets: what a sampler emits, without an engine.

Every fault is one branch. Noise is drawn as exponentials where faults share it, else by inverse cumulative sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.cases.row_sets import RowSets
from verispec.judge.statistics.given_drafts import FAR, Requests

Array = np.ndarray[Any, Any]

SHARED = ("draft noise", "neighbour noise", "far noise", "step noise")
"""Faults that share exponential noise."""
ENDS = {"first lost": 0, "last lost": -1}
"""Tokens that a fault never draws."""
OFFSETS = {"other": -1, "next": 1}


class SimulatedSampler:
    """Emits what a sampler with `fault` would, for requests of `sets`; "" is correct."""

    def __init__(self, sets: RowSets, fault: str = "") -> None:
        self.rows, self.fault = sets, fault
        self.p, self.q = sets.p, sets.q
        if fault == "limits ignored" and sets.unlimited is not None:
            self.p = sets.unlimited
        drafts = sets.drafts
        apart = self.p[:, :drafts] - self.q
        rest = np.abs(apart) if fault == "unsigned" else np.maximum(apart, 0.0)
        mass = rest.sum(-1, keepdims=True)
        self.residual = np.where(mass > 0, rest / np.maximum(mass, 1e-300), self.p[:, :drafts])
        self._tables: dict[str, Array] = {}
        self._kept_noise: dict[int, Array] = {}

    def __call__(self, rng: np.random.Generator, sets: Array, lengths: Array, drafts: Array) -> Requests:
        fault, count, K = self.fault, len(sets), self.rows.drafts
        read = np.concatenate([sets[:1], sets[:-1]]) if fault == "neighbour row" else sets
        alive, accepted, last = np.ones(count, bool), np.zeros(count, np.int64), np.full(count, -1)
        one_u = rng.random(count)
        for i in range(K):
            d = drafts[:, i]
            u = one_u if fault == "one u" else rng.random(count)
            if fault == "neighbour u":
                u = np.repeat(u[::2], 2)[:count]
            if fault.startswith("few bits"):
                bits = 2.0 ** float(fault.split()[2])
                u = np.floor(u * bits) / bits
            ok = self._accept(rng, sets, read, i, d, u)
            reached = alive & (lengths > i)
            j = np.flatnonzero(reached & ~ok)
            if len(j):
                last[j] = self._recover(rng, read[j], i, d[j], u[j], j)
                accepted[j] = i
            alive &= ok | (lengths <= i)
            finished = np.flatnonzero(alive & (lengths == i + 1))
            accepted[finished] = i + 1
        j = np.flatnonzero(last < 0)
        last[j] = self._bonus(rng, read[j], lengths[j])
        return Requests(sets, lengths, drafts, accepted, last)

    def _accept(self, rng: np.random.Generator, sets: Array, read: Array, i: int, d: Array, u: Array) -> Array:
        """Return True if each draft of position i is accepted, reached or not."""
        fault, K = self.fault, self.rows.drafts
        which, _, table = fault.partition(" ")
        step = OFFSETS.get(which, 0)
        p_row = i + step if table == "p" and i + step >= 0 else i
        q_row = i + step if table == "q" and 0 <= i + step < K else i
        p, q = self.p[read, p_row, d], self.q[sets, q_row, d]
        if fault == "argmax rule":
            return d == self.p[sets, i].argmax(1)
        a = p if fault == "no ratio" else p / np.maximum(q, 1e-30)
        if which == "ratio":
            a = a * float(table)
        ok = u < a
        if which == "kept":
            ok |= (rng.random(len(d)) < float(table)) & (p > 0)
        if which == "dropped":
            ok &= rng.random(len(d)) >= float(table)
        return ok

    def _recover(self, rng: Any, m: Array, i: int, d: Array, u: Array, places: Array) -> Array:
        fault, K = self.fault, self.rows.drafts
        r, v = m * K + i, rng.random(len(m))
        residual = self.residual.reshape(-1, self.rows.vocab_size)
        if fault == "reused u":
            v = u
        if fault in SHARED:
            return self._race(rng, m, i, d, places)
        own = self._draw("residual", residual, r, v)
        if fault.startswith("target"):
            share = float(fault.split()[1]) if " " in fault else 1.0
            from_target = self._draw("p", self.p.reshape(-1, self.rows.vocab_size), m * (K + 1) + i, v)
            return np.where(rng.random(len(m)) < share, from_target, own)
        if fault == "first residual":
            return self._draw("residual", residual, m * K, v)
        if fault == "other residual" and i:
            return self._draw("residual", residual, r - 1, v)
        if fault == "next residual" and i + 1 < K:
            return self._draw("residual", residual, r + 1, v)
        if fault == "draft row":
            return self._draw("q", self.q.reshape(-1, self.rows.vocab_size), r, v)
        if fault == "recovered greedy":
            return residual[r].argmax(1)
        return own

    def _race(self, rng: Any, m: Array, i: int, d: Array, places: Array) -> Array:
        """Recover by exponential noise that the draft, a neighbour, or an earlier batch has used."""
        out = np.empty(len(m), np.int64)
        vocab = self.rows.vocab_size
        noises = self._kept_noise if self.fault == "step noise" else {}
        for n, (s, place) in enumerate(zip(m.tolist(), places.tolist(), strict=True)):
            if self.fault == "draft noise":
                # Given that the draft won with M ~ Exp(1), every other noise is M q plus a fresh exponential.
                smallest = rng.exponential()
                fresh = np.where(np.arange(vocab) == d[n], 0.0, rng.exponential(size=vocab))
                noise = smallest * self.q[s, i] + fresh
            else:
                key = {"neighbour noise": place // 2, "far noise": place % FAR}.get(self.fault, place)
                if key not in noises:
                    noises[key] = rng.exponential(size=vocab)
                noise = noises[key]
            weight = self.residual[s, i]
            out[n] = np.where(weight > 0, noise / np.maximum(weight, 1e-300), np.inf).argmin()
        return out

    def _bonus(self, rng: Any, m: Array, lengths: Array) -> Array:
        fault, K, V = self.fault, self.rows.drafts, self.rows.vocab_size
        row, v = lengths, rng.random(len(m))
        if fault == "last row":
            row = np.maximum(lengths - 1, 0)
        if fault == "first row":
            row = np.zeros_like(lengths)
        if fault in ENDS:
            table = self.p.reshape(-1, V).copy()
            table[:, ENDS[fault]] = 0.0
            return self._draw("without an end", table / table.sum(1, keepdims=True), m * (K + 1) + row, v)
        if fault.startswith("temperature"):
            power = 1 / float(fault.split()[1])
            name, table = "tempered", self.p.reshape(-1, V) ** power
            return self._draw(name, table / table.sum(1, keepdims=True), m * (K + 1) + row, v)
        if fault.startswith("tail"):
            table = np.where(self.p >= float(fault.split()[1]), self.p, 0.0).reshape(-1, V)
            return self._draw("cut", table / table.sum(1, keepdims=True), m * (K + 1) + row, v)
        own = self._draw("p", self.p.reshape(-1, V), m * (K + 1) + row, v)
        if fault == "bonus residual":
            last = np.maximum(lengths - 1, 0)
            rest = self._draw("residual", self.residual.reshape(-1, V), m * K + last, v)
            return np.where(lengths > 0, rest, own)
        if fault.startswith("greedy "):
            share = float(fault.split()[-1])
            return np.where(rng.random(len(m)) < share, self.p[m, row].argmax(1), own)
        if fault == "excluded":
            outside = (self.p.reshape(-1, V) <= 0).astype(np.float64)
            at, some = m * (K + 1) + row, outside.any(1)
            outside[~some] = 1.0
            drawn = self._draw("outside", outside, at, v)
            return np.where(some[at] & (rng.random(len(m)) < 0.02), drawn, own)
        return own

    def _draw(self, name: str, rows: Array, r: Array, v: Array) -> Array:
        if name not in self._tables:
            cumulative = np.cumsum(rows, 1)
            cumulative /= cumulative[:, -1:]
            self._tables[name] = (cumulative + np.arange(len(rows))[:, None]).ravel()
        found = np.searchsorted(self._tables[name], r + v, side="right") - r * self.rows.vocab_size
        return np.minimum(found, self.rows.vocab_size - 1)

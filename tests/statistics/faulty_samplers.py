"""Samplers with one fault each, as simulations over row sets: what a sampler emits, without an engine.

Every fault is one branch. Noise is drawn as exponentials where faults share it, else by inverse cumulative sums.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from verispec.cases.row_sets import RowSets, random_row_sets
from verispec.judge import Mismatch
from verispec.judge.statistics.budget import weight_of
from verispec.judge.statistics.evidence import Evidence
from verispec.judge.statistics.given_drafts import GivenDrafts, Requests
from verispec.judge.statistics.given_drafts import RowSets as ExactRows
from verispec.judge.statistics.trial import Trial

Array = np.ndarray[Any, Any]

WEIGHT = weight_of("sampler/whole_sampler:WS-10:mode=law")


@dataclass(frozen=True)
class Planted:
    """Required name of a planted fault: keys of `verispec.judge.statistics.faults.FAULTS`, and the rows to use."""

    names: tuple[str, ...]
    limits: str = "none"


FAULTS = {
    "target": Planted(("target",)),
    "target 0.02": Planted(("target",)),
    "greedy recovered": Planted(("greedy",)),
    "first residual": Planted(("first residual",)),
    "other residual": Planted(("other residual",)),
    "reused u": Planted(("reused u",)),
    "one u": Planted(("one u",)),
    "neighbour u": Planted(("neighbour u",)),
    "other q": Planted(("other q",)),
    "last row": Planted(("last row",)),
    "ratio 1.02": Planted(("ratio",)),
    "ratio 1.05": Planted(("ratio",)),
    "ratio 0.95": Planted(("ratio",)),
    "kept 0.03": Planted(("kept",)),
    "temperature 0.95": Planted(("temperature",)),
    "greedy 0.05": Planted(("greedy",)),
    "tail 1e-4": Planted(("tail lost",)),
    "draft noise": Planted(("draft noise",)),
    "neighbour noise": Planted(("neighbour noise",)),
    "excluded": Planted((), "top_k"),
}
"""Faults at the sizes that the suites state; an excluded token has no name but is impossible."""


class SimulatedSampler:
    """Emits what a sampler with `fault` would, for requests of `sets`; "" is correct."""

    def __init__(self, sets: RowSets, fault: str = "") -> None:
        self.rows, self.fault = sets, fault
        self.p, self.q = sets.p, sets.q
        drafts = sets.drafts
        rest = np.maximum(self.p[:, :drafts] - self.q, 0.0)
        mass = rest.sum(-1, keepdims=True)
        self.residual = np.where(mass > 0, rest / np.maximum(mass, 1e-300), self.p[:, :drafts])
        self._tables: dict[str, Array] = {}

    def __call__(self, rng: np.random.Generator, sets: Array, lengths: Array, drafts: Array) -> Requests:
        fault, count, K = self.fault, len(sets), self.rows.drafts
        p, q = self.p, self.q
        alive, accepted, last = np.ones(count, bool), np.zeros(count, np.int64), np.full(count, -1)
        one_u = rng.random(count)
        for i in range(K):
            d = drafts[:, i]
            u = one_u if fault == "one u" else rng.random(count)
            if fault == "neighbour u":
                u = np.repeat(u[::2], 2)[:count]
            denominator = np.maximum(q[sets, i - 1, d], 1e-30) if fault == "other q" and i else q[sets, i, d]
            a = p[sets, i, d] / np.maximum(denominator, 1e-30)
            if fault.startswith("ratio"):
                a = a * float(fault.split()[1])
            if fault == "few bits":
                u = np.floor(u * 256) / 256
            ok = u < a
            if fault.startswith("kept"):
                ok |= (rng.random(count) < float(fault.split()[1])) & (p[sets, i, d] > 0)
            reached = alive & (lengths > i)
            j = np.flatnonzero(reached & ~ok)
            if len(j):
                last[j] = self._recover(rng, sets[j], i, d[j], u[j], j)
                accepted[j] = i
            alive &= ok | (lengths <= i)
            finished = np.flatnonzero(alive & (lengths == i + 1))
            accepted[finished] = i + 1
        j = np.flatnonzero(last < 0)
        last[j] = self._bonus(rng, sets[j], lengths[j], drafts[j], j)
        return Requests(sets, lengths, drafts, accepted, last)

    def _recover(self, rng: Any, m: Array, i: int, d: Array, u: Array, places: Array) -> Array:
        fault, K = self.fault, self.rows.drafts
        r, v = m * K + i, rng.random(len(m))
        residual = self.residual.reshape(-1, self.rows.vocab_size)
        if fault == "reused u":
            v = u
        if fault in ("neighbour noise", "draft noise"):
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
        if fault == "greedy recovered":
            return residual[r].argmax(1)
        return own

    def _race(self, rng: Any, m: Array, i: int, d: Array, places: Array) -> Array:
        """Recover by exponential noise that a neighbour, or the draft, has used."""
        out = np.empty(len(m), np.int64)
        vocab = self.rows.vocab_size
        previous: tuple[int, Array] = (-1, np.empty(0))
        for n, (s, place) in enumerate(zip(m.tolist(), places.tolist(), strict=True)):
            noise = rng.exponential(size=vocab)
            if self.fault == "neighbour noise":
                if place % 2 and previous[0] == place - 1:
                    noise = previous[1]
                previous = (place, noise)
            else:
                # Given that the draft won with M ~ Exp(1), every other noise is M q plus a fresh exponential.
                smallest = rng.exponential()
                noise = np.where(np.arange(vocab) == d[n], smallest * self.q[s, i], smallest * self.q[s, i] + noise)
            weight = self.residual[s, i]
            out[n] = np.where(weight > 0, noise / np.maximum(weight, 1e-300), np.inf).argmin()
        return out

    def _bonus(self, rng: Any, m: Array, lengths: Array, drafts: Array, places: Array) -> Array:
        fault, K, V = self.fault, self.rows.drafts, self.rows.vocab_size
        row, v = lengths, rng.random(len(m))
        if fault == "last row":
            row = np.maximum(lengths - 1, 0)
        if fault.startswith("temperature"):
            power = 1 / float(fault.split()[1])
            name, table = "tempered", self.p.reshape(-1, V) ** power
            return self._draw(name, table / table.sum(1, keepdims=True), m * (K + 1) + row, v)
        if fault.startswith("tail"):
            table = np.where(self.p >= float(fault.split()[1]), self.p, 0.0).reshape(-1, V)
            return self._draw("cut", table / table.sum(1, keepdims=True), m * (K + 1) + row, v)
        own = self._draw("p", self.p.reshape(-1, V), m * (K + 1) + row, v)
        if fault.startswith("greedy"):
            share = float(fault.split()[-1]) if fault != "greedy recovered" else 0.0
            return np.where(rng.random(len(m)) < share, self.p[m, row].argmax(1), own)
        if fault == "excluded":
            return np.where(rng.random(len(m)) < 0.02, rng.integers(0, V, len(m)), own)
        return own

    def _draw(self, name: str, rows: Array, r: Array, v: Array) -> Array:
        if name not in self._tables:
            cumulative = np.cumsum(rows, 1)
            cumulative /= cumulative[:, -1:]
            self._tables[name] = (cumulative + np.arange(len(rows))[:, None]).ravel()
        found = np.searchsorted(self._tables[name], r + v, side="right") - r * self.rows.vocab_size
        return np.minimum(found, self.rows.vocab_size - 1)


@cache
def rows_of(limits: str) -> tuple[RowSets, ExactRows]:
    """Row sets of the suites' shape, and their exact distributions."""
    source = random_row_sets(np.random.default_rng(0), 16, 5, 512, limits=limits)
    return source, ExactRows(source.p, source.q, source.slack)


def run(fault: str, seed: int) -> tuple[Evidence, int]:
    """Return the evidence against one fault, or none for "", with the weight and the cap of a suite's case."""
    source, exact = rows_of(FAULTS[fault].limits if fault in FAULTS else "none")
    cap = 30_000
    rng = np.random.default_rng(seed)
    model = GivenDrafts(exact, WEIGHT, seed)
    sampler = SimulatedSampler(source, fault)

    def step() -> None:
        sets, lengths = source.choose(rng, 300)
        model.add(sampler(rng, sets, lengths, source.draw(rng, sets)))

    trial = Trial("sampler/whole_sampler:WS-10:mode=law", seed, seed)
    with suppress(Mismatch):
        trial.collect(model.evidence, cap, step)
    return model.evidence, cap

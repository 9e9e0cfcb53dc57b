"""Statistical tests on simulated engines: each planted fault with its test, rows, cap and required name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

import numpy as np
from faulty_samplers import SimulatedSampler
from faulty_texts import SimulatedBlocks, SimulatedTexts

from verispec.cases.row_sets import LIMITS, RowSets, random_row_sets
from verispec.fixtures.witness import witness_tables
from verispec.judge import Mismatch
from verispec.judge.statistics.bets import TailBets
from verispec.judge.statistics.block_rule import BlockRule
from verispec.judge.statistics.budget import weight_of
from verispec.judge.statistics.effects import BLOCKS, effects, of_steps
from verispec.judge.statistics.evidence import Evidence
from verispec.judge.statistics.faults import Bet
from verispec.judge.statistics.given_drafts import GivenDrafts
from verispec.judge.statistics.given_drafts import RowDistributions as ExactRows
from verispec.judge.statistics.noise import needles
from verispec.judge.statistics.places import PlaceView, cells_of
from verispec.judge.statistics.rates import Rates
from verispec.judge.statistics.rows import Rows
from verispec.judge.statistics.text import GivenText
from verispec.judge.statistics.trial import Trial

Array = np.ndarray[Any, Any]

BATCH, DRAFTS, SETS = 300, 5, 16
VOCAB, SMALL_VOCAB = 2048, 512
"""Vocabularies of clause WS-10, and of blocks and witness models."""
TEXTS, LENGTH = 32, 48
RATES = (0.8, 0.625, 0.4)
"""Conditional acceptance rates that clause WS-12 configures."""
NEEDLE_VOCAB, NEEDLE, FLOATS = 151_936, 1e-8, 16 / 597
"""A row of needles, and the share of them that float32 noise on CUDA draws (measured on an H200)."""


@dataclass(frozen=True)
class Planted:
    """A planted fault.

    Attributes:
        names: keys of `verispec.judge.statistics.faults.FAULTS` that name it rightly.
        test: key of `TESTS`.
        limits: limits of the row sets, one of `verispec.cases.row_sets.LIMITS`.
    """

    names: tuple[str, ...]
    test: str = "drafts"
    limits: str = "none"


FAULTS = {
    "target": Planted(("target",)),
    "target 0.02": Planted(("target",)),
    "recovered greedy": Planted(("greedy",)),
    "first residual": Planted(("first residual",)),
    "other residual": Planted(("other residual",)),
    "next residual": Planted(("next residual",)),
    "unsigned": Planted(("unsigned",)),
    "draft row": Planted(("draft row",)),
    "reused u": Planted(("reused u",)),
    "one u": Planted(("one u",)),
    "neighbour u": Planted(("neighbour u",)),
    "few bits 4": Planted(("few bits",)),
    "other q": Planted(("other q",)),
    "next q": Planted(("next q",)),
    "other p": Planted(("other p",)),
    "next p": Planted(("next p",)),
    "no ratio": Planted(("no ratio",)),
    "argmax rule": Planted(("argmax rule",)),
    "neighbour row": Planted(("neighbour row",)),
    "last row": Planted(("last row",)),
    "first row": Planted(("first row",)),
    "bonus residual": Planted(("bonus residual",)),
    "ratio 1.02": Planted(("ratio",)),
    "ratio 1.05": Planted(("ratio",)),
    "ratio 0.95": Planted(("ratio",)),
    "ratio 1.3": Planted(("ratio",)),
    "kept 0.03": Planted(("kept",)),
    "dropped 0.03": Planted(("dropped",)),
    "temperature 0.95": Planted(("temperature",)),
    "greedy 0.05": Planted(("greedy",)),
    "tail 1e-4": Planted(("tail lost",)),
    "first lost": Planted(("first lost",)),
    "last lost": Planted(("last lost",)),
    "draft noise": Planted(("draft noise",)),
    "neighbour noise": Planted(("neighbour noise",)),
    "far noise": Planted(("far noise",)),
    "step noise": Planted(("step noise",)),
    "excluded": Planted(("excluded",), limits="top_k"),
    "limits ignored": Planted(("unlimited",), limits="both"),
    "text target": Planted(("target",), "text"),
    "text recovered greedy": Planted(("greedy",), "text"),
    "text ratio 1.3": Planted(("ratio",), "text"),
    "text tail 1e-4": Planted(("tail lost",), "text"),
    "text kept 0.05": Planted(("kept",), "text"),
    "text temperature 0.95": Planted(("temperature",), "text"),
    "text greedy 0.05": Planted(("greedy",), "text"),
    "text draft noise": Planted(("draft noise",), "text"),
    "text excluded 0.02": Planted(("excluded",), "text", "top_k"),
    "block h 1.05": Planted(("ratio",), "block"),
    "block target": Planted(("target",), "block"),
    "block token rule": Planted(("token rule", "token residual"), "block"),
    "rate 1.05": Planted(("ratio",), "rates"),
    "float32 tail": Planted(("tail lost",), "needles"),
}
"""Faults at the sizes that the suites state."""


@dataclass
class Simulation:
    """A statistical test that has begun.

    Attributes:
        evidence: evidence so far.
        step: add one batch.
        cap: largest sample, in units of the evidence.
        effects: bets whose exclusion ends the test.
        trial: decides when to stop; its record says when the test had failed.
    """

    evidence: Evidence
    step: Callable[[], None]
    cap: int
    effects: Sequence[Bet] = ()
    trial: Trial = field(default_factory=lambda: Trial("sampler/whole_sampler:WS-10:mode=law", 0, 0))


@lru_cache(maxsize=16)
def row_sets(seed: int, limits: str, *, vocab: int = VOCAB, certain: bool = False) -> tuple[RowSets, ExactRows]:
    """Return row sets of the suites' shape, and their exact distributions."""
    source = random_row_sets(np.random.default_rng(seed), SETS, DRAFTS, vocab, limits=limits, certain=certain)
    return source, ExactRows(source.p, source.q, source.slack, source.unlimited)


def given_drafts(fault: str, seed: int, rows: int, limits: str, *, certain: bool = False) -> Simulation:
    """Clause WS-10: steps whose drafts are known."""
    source, exact = row_sets(rows, limits, certain=certain)
    rng, sampler = np.random.default_rng(seed), SimulatedSampler(source, fault)
    model = GivenDrafts(exact, weight_of("sampler/whole_sampler:WS-10"), seed)

    def step() -> None:
        sets, lengths = source.choose(rng, BATCH)
        model.add(sampler(rng, sets, lengths, source.draw(rng, sets)))

    return Simulation(model.evidence, step, 30_000, of_steps(limits, certain=certain))


def block(fault: str, seed: int, rows: int, limits: str, *, certain: bool = False) -> Simulation:
    """Clause WS-10 of block verification."""
    source, exact = row_sets(rows, limits, vocab=SMALL_VOCAB, certain=certain)
    rng = np.random.default_rng(seed)
    sampler = SimulatedSampler(source) if fault == "block token rule" else SimulatedBlocks(source, fault)
    model = BlockRule(exact, weight_of("sampler/whole_sampler:WS-10"), seed)

    def step() -> None:
        sets, lengths = source.choose(rng, BATCH)
        model.add(sampler(rng, sets, lengths, source.draw(rng, sets)))

    return Simulation(model.evidence, step, 20_000, effects(BLOCKS))


def text(fault: str, seed: int, rows: int, limits: str, *, certain: bool = False) -> Simulation:
    """Clause GEN-6: texts of a witness model, whose steps the engine reports."""
    tables = witness_tables(SMALL_VOCAB, rows)
    p, q = (_softmax(table.astype(np.float64)) for table in (tables.target, tables.draft))
    if limits == "top_k":
        p = np.where(p >= np.sort(p, 1)[:, -50:-49], p, 0.0)
        p /= p.sum(1, keepdims=True)
    if certain:
        q = np.eye(SMALL_VOCAB)[q.argmax(1)]
    exact, rng = Rows(p, q), np.random.default_rng(seed)
    texts = SimulatedTexts(exact, 3, fault.removeprefix("text "))
    model = GivenText(weight_of("e2e/witness:GEN-6"), seed, drafted=True)

    def step() -> None:
        parts = [part.ravel() for part in texts(rng, TEXTS, LENGTH)]  # One after the other, as if one text.
        model.add(exact, *parts, slack=2.0**-22 * 20)

    return Simulation(model.evidence, step, 48_000)


def rates(fault: str, seed: int, rows: int, limits: str, *, certain: bool = False) -> Simulation:
    """Clause WS-12: decisions at configured rates."""
    del rows, limits, certain
    rng = np.random.default_rng(seed)
    model = Rates(weight_of("synthetic/whole_sampler:WS-12"), seed, "decisions")
    factor = float(fault.split()[1]) if fault else 1.0

    def step() -> None:
        reached = 2000
        for rate in RATES:
            accepted = rng.random(reached) < factor * rate
            model.add(np.full(reached, rate), accepted)
            reached = int(accepted.sum())

    return Simulation(model.evidence, step, 35_000)


def needle_row(fault: str, seed: int, rows: int, limits: str, *, certain: bool = False) -> Simulation:
    """Clause WS-14: one likely token beside 151,935 of probability 1e-8."""
    del rows, limits, certain
    rng = np.random.default_rng(seed)
    exact, bets, view = _needles(), TailBets("token"), PlaceView("likely first")
    evidence = Evidence(bets.bets, [view], weight_of("sampler/whole_sampler:WS-14"))
    rare = (1.0 - exact.p[0, 0]) * (FLOATS if fault else 1.0)

    def step() -> None:
        at = np.zeros(BATCH, np.int64)
        tokens = np.where(rng.random(BATCH) < rare, rng.integers(1, NEEDLE_VOCAB, BATCH), 0)
        evidence.add(bets.log_ratios(exact, at, tokens), BATCH)
        view.add(cells_of(exact.likely_first[at, tokens], exact.p[at, tokens], rng.random(BATCH)))
        evidence.checkpoint()

    return Simulation(evidence, step, 40_000, [Bet("token", "tail lost", 3e-8)])


TESTS: dict[str, Callable[..., Simulation]] = {
    "drafts": given_drafts,
    "block": block,
    "text": text,
    "rates": rates,
    "needles": needle_row,
}


def planted(fault: str, seed: int, rows: int = 0) -> Simulation:
    """Return the test of one planted fault.

    Args:
        fault: key of `FAULTS`.
        seed: seed of all draws.
        rows: seed of the row sets.
    """
    plan = FAULTS[fault]
    return TESTS[plan.test](fault, seed, rows, plan.limits)


def correct(test: str, seed: int, rows: int = 0, limits: str | None = None) -> Simulation:
    """Return one of `TESTS` on a correct engine; limits and the kind of drafts change with `rows`."""
    allowed = {"drafts": LIMITS, "block": ("none", "temperature", "both"), "text": ("none", "top_k")}.get(
        test, ("none",)
    )
    chosen = limits or allowed[rows % len(allowed)]
    return TESTS[test]("", seed, rows, chosen, certain=limits is None and rows // len(allowed) % 2 == 1)


def run(simulation: Simulation) -> Evidence:
    """Sample until the evidence decides, as a case of a suite does, and return it."""
    with suppress(Mismatch):
        simulation.trial.collect(simulation.evidence, simulation.cap, simulation.step, simulation.effects)
    return simulation.evidence


@cache
def _needles() -> Rows:
    p = np.exp(needles(NEEDLE_VOCAB, NEEDLE).astype(np.float64))
    return Rows((p / p.sum())[None])


def _softmax(table: Array) -> Array:
    weights = np.exp(table - table.max(1, keepdims=True))
    result: Array = weights / weights.sum(1, keepdims=True)
    return result

"""Streams of requests through an end-to-end sampler: batches of 1 to 300, some of them greedy, tested as they come."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from verispec.cases.row_sets import RowSets
from verispec.cases.sampling import greedy_tokens, rows_of
from verispec.engines.protocol.sampling import Draws, SamplerBatch, Trace
from verispec.judge import Failure, Inconclusive, Kind, Mismatch, SamplerUnderTest
from verispec.judge.statistics import given_drafts
from verispec.judge.statistics.bets import TailBets
from verispec.judge.statistics.block_rule import BlockRule
from verispec.judge.statistics.coupling import Coupling, SharedNumbers
from verispec.judge.statistics.evidence import Evidence
from verispec.judge.statistics.faults import Bet
from verispec.judge.statistics.given_drafts import GivenDrafts, Requests
from verispec.judge.statistics.noise import measure, needles
from verispec.judge.statistics.places import PlaceView, cells_of
from verispec.judge.statistics.rows import Rows
from verispec.judge.statistics.trial import Trial

Array = np.ndarray[Any, Any]

SIZES = (300, 300, 1, 65, 300, 7, 128, 300, 300, 33)
"""Requests per batch: one, about a warp, beyond 64, and many."""
GREEDY = 0.05
"""Share of greedy requests; with other neighbours a request's tokens would be the same."""
VOCABULARY = 151_936
TRACED = 24
"""Rows of noise that are measured: 3.6 million numbers, 3,500 of them below 2^-10."""
LOST = 1e-5
"""Most of a distribution that the bits of its noise may lose (WS-14)."""
REPEATED = 0.1
"""Maximum share of small noise that repeats: 3,500 values of 32-bit words give 0.001, values of 16 bits give 0.4."""
NEEDLE_BATCH = 64
NEEDLE_SLACK = 2.0**-22 * (4 + 18.4)
"""Rounding of a logit of log(1e-8) = -18.4 and of its softmax."""


def sizes(most: int) -> Iterator[int]:
    """Yield batch sizes for ever."""
    for size in itertools.cycle(SIZES):
        yield min(size, most)


class _Stream:
    """Batches of one set of rows; greedy requests are compared with the argmax.

    After a wrong greedy request the batches have no greedy requests any more, so that the sampled ones are tested
    nevertheless. `conclude` fails the case then.
    """

    def __init__(
        self, sampler: SamplerUnderTest, rows: RowSets, trial: Trial, rng: np.random.Generator, most: int = 300
    ) -> None:
        self._sampler, self._source, self._rng, self._sizes = sampler, rows, rng, sizes(most)
        self._trial = trial
        self._greedy_fault: Mismatch | None = None

    def next(self) -> tuple[Array, Array, Array, Array]:
        """Return the next batch: row sets, draft counts, drafts, and a mask of greedy requests."""
        count = next(self._sizes)
        sets, lengths = self._source.choose(self._rng, count)
        drafts, greedy = self._source.draw(self._rng, sets), self._rng.random(count) < GREEDY
        return sets, lengths, drafts, greedy & (self._greedy_fault is None)

    def greedy_is_right(self, batch: SamplerBatch, tokens: list[list[int]], greedy: Array) -> bool:
        """Return whether greedy requests emitted the argmax; keep the fault otherwise."""
        for b in np.flatnonzero(greedy).tolist():
            expected = greedy_tokens(batch, b)
            if tokens[b] != expected and not is_greedy(batch, b, tokens[b]):
                message = f"greedy request {b} beside sampled ones emitted {tokens[b]}, expected {expected}"
                details = {"expected": expected, "got": tokens[b]}
                self._greedy_fault = Mismatch(Failure(Kind.VALUE, message, details=details))
                self._trial.record["apart"] = {"without": "greedy requests", "message": message}
                return False
        return True

    def conclude(self) -> None:
        """Raise `Mismatch` if a greedy request was wrong."""
        if self._greedy_fault is not None:
            raise self._greedy_fault


def is_greedy(batch: SamplerBatch, b: int, tokens: Sequence[int]) -> bool:
    """Return True if each token has the largest logit of its row, whichever of equal ones it is.

    A draft goes on exactly where it was emitted.
    """
    rows, drafts = batch.logits[rows_of(batch, b)], batch.draft_token_ids[b]
    if not 0 < len(tokens) <= len(rows):
        return False
    for place, (row, token) in enumerate(zip(rows, tokens, strict=False)):
        kept = place < len(drafts) and token == drafts[place]
        if row[token] < row.max() or (place < len(drafts) and kept == (place == len(tokens) - 1)):
            return False
    return True


def run_stream(
    sampler: SamplerUnderTest,
    rows: RowSets,
    trial: Trial,
    cap: int,
    rng: np.random.Generator,
    *,
    block: bool = False,
    most: int = 300,
    effects: Sequence[Bet] = (),
) -> None:
    """Judge requests until `cap` were seen, the evidence decides, or all `effects` are excluded."""
    stream = _Stream(sampler, rows, trial, rng, most)
    exact = given_drafts.RowDistributions(rows.p, rows.q, rows.slack, rows.unlimited)
    model: GivenDrafts | BlockRule = (BlockRule if block else GivenDrafts)(exact, trial.weight, trial.seed)

    def step() -> None:
        sets, lengths, drafts, greedy = stream.next()
        batch = rows.batch(sets, lengths, drafts, greedy=greedy)
        tokens = sampler(batch)
        kept = np.flatnonzero(~greedy)
        if stream.greedy_is_right(batch, tokens, greedy) and len(kept):
            model.add(Requests.of(sets[kept], lengths[kept], drafts[kept], [tokens[b] for b in kept]))

    trial.collect(model.evidence, cap, step, effects)
    stream.conclude()


def untold(batch: SamplerBatch, trace: Trace) -> int:
    """Return the number of requests whose random samples a trace lacks: seeded and sampled ones with drafts."""
    seeds = batch.seeds or [None] * len(batch.counts)
    heat = batch.temperature.tolist()
    return sum(
        draws is None and seeds[b] is not None and count > 0 and heat[b] > 0
        for b, (draws, count) in enumerate(zip(trace.draws, batch.counts, strict=True))
    )


def require_told(missing: int, judged: int) -> None:
    """Raise Inconclusive if a trace has random samples of some requests alone: those of the others are not compared."""
    if missing:
        raise Inconclusive(
            f"trace() has no Draws of {missing} seeded requests with drafts, whose tokens are not compared; "
            f"of {judged} others it has"
        )


class Coupled(_Stream):
    """A stream whose requests are seeded and compared with the oracle under the same random numbers."""

    def __init__(self, sampler: SamplerUnderTest, rows: RowSets, trial: Trial, rng: np.random.Generator) -> None:
        super().__init__(sampler, rows, trial, rng)
        self._untold = 0
        self.coupling = Coupling(given_drafts.RowDistributions(rows.p, rows.q, rows.slack, rows.unlimited))

    def step(self) -> None:
        """Compare one batch. Raises `Inconclusive` where the engine does not report its random numbers."""
        sets, lengths, drafts, greedy = self.next()
        seeds = self._rng.integers(0, 2**62, len(sets)).tolist()
        batch = self._source.batch(sets, lengths, drafts, seeds, greedy)
        trace = self._sampler.trace(batch)
        if not self.greedy_is_right(batch, trace.tokens, greedy):
            return
        self._untold += untold(batch, trace)
        known = [b for b, draws in enumerate(trace.draws) if draws is not None and not greedy[b]]
        if len(sets) == max(SIZES) and not known:
            raise Inconclusive("the engine does not report its random numbers")
        if known:
            requests = Requests.of(sets[known], lengths[known], drafts[known], [trace.tokens[b] for b in known])
            draws = [d for d in (trace.draws[b] for b in known) if d is not None]
            self.coupling.add(requests, _numbers(draws, self._source))

    def conclude(self) -> None:
        """Raise `Mismatch` if a greedy request was wrong, `Inconclusive` if some requests were not compared."""
        super().conclude()
        require_told(self._untold, self.coupling.requests)


def _numbers(draws: list[Draws], rows: RowSets) -> SharedNumbers:
    uniform = np.zeros((len(draws), rows.drafts))
    noise, bonus_noise = (np.full((len(draws), rows.vocab_size), np.nan) for _ in range(2))
    for b, one in enumerate(draws):
        accept, row = one.uniform.numpy(), one.noise.numpy()
        uniform[b, : len(accept)] = accept
        noise[b] = row
        if one.bonus_noise is not None:
            bonus_noise[b] = row if one.bonus_noise is one.noise else one.bonus_noise.numpy()
    return SharedNumbers(uniform, noise, bonus_noise)


def measure_noise(sampler: SamplerUnderTest, trial: Trial) -> bool:
    """Check the noise of bonus tokens; return True if the engine reports any.

    Raises `Mismatch` where the noise lies on a grid so coarse that tails are lost.
    """
    logits = torch.zeros(TRACED, VOCABULARY)
    seeds = [trial.seed % 2**31 + n for n in range(TRACED)]
    draws = sampler.trace(SamplerBatch(logits, [[]] * TRACED, torch.ones(TRACED), seeds=seeds)).draws
    told = [one.bonus_noise.numpy() for one in draws if one is not None and one.bonus_noise is not None]
    report = measure(np.stack(told)) if told else None
    if report is None:
        return False
    lost = VOCABULARY * 2.0**-report.grid_bits if report.grid_bits else 0.0
    trial.record["noise"] = {**asdict(report), "lost": lost}
    if lost > LOST:
        text = f"noise lies on a grid of 2^-{report.grid_bits}: up to {lost:.1g} of a distribution over {VOCABULARY:,}"
        known = "tokens below the grid are never drawn; known from vllm#43150"
        raise Mismatch(Failure(Kind.LAW, f"{text} tokens is lost; {known}", details=asdict(report)))
    if report.repeated > REPEATED:
        text = (
            f"{report.repeated:.0%} of the noise below 2^-10 occurs more than once: it has few bits, and many draws tie"
        )
        raise Mismatch(Failure(Kind.LAW, text, details=asdict(report)))
    return True


def run_needles(sampler: SamplerUnderTest, trial: Trial, cap: int) -> None:
    """Judge tokens of a row with one likely token and 151,935 of probability 1e-8 each."""
    logits = needles(VOCABULARY, 1e-8)
    p = np.exp(logits.astype(np.float64))
    rows = Rows((p / p.sum())[None])
    bets = TailBets("token")
    view = PlaceView("likely first")
    evidence = Evidence(bets.bets, [view], trial.weight)
    rng = np.random.default_rng(trial.seed)
    spread = torch.from_numpy(logits).repeat(NEEDLE_BATCH, 1)

    def step() -> None:
        batch = SamplerBatch(spread, [[]] * NEEDLE_BATCH, torch.ones(NEEDLE_BATCH))
        tokens = np.array([emitted[0] for emitted in sampler(batch)])
        at = np.zeros(NEEDLE_BATCH, np.int64)
        evidence.add(bets.log_ratios(rows, at, tokens), NEEDLE_BATCH, NEEDLE_SLACK)
        view.add(cells_of(rows.likely_first[at, tokens], rows.p[at, tokens], rng.random(NEEDLE_BATCH)))
        evidence.notes["needles"] = {
            "probability": 1e-8,
            "expected": float(evidence.count * (1 - rows.p[0, 0])),
            "seen": int(evidence.notes.get("needles", {}).get("seen", 0)) + int((tokens != 0).sum()),
        }
        evidence.checkpoint()

    trial.collect(evidence, cap, step, effects=[Bet("token", "tail lost", 3e-8)])

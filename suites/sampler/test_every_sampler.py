"""An end-to-end sampler leaves its inputs unchanged, and keeps nothing from call to call (contract ANY)."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.sampling import random_sampler_batch
from verispec.engines import Engine
from verispec.engines.protocol.sampling import SamplerBatch
from verispec.judge import Failure, Kind, Mismatch, SamplerUnderTest, sampler_of
from verispec.judge.resources import assert_nothing_kept

COUNTS = (3, 0, 2, 5, 1, 0, 4)
STEPS = 40
"""Steps of a round of ANY-10."""
LIMITS: dict[str, dict[str, Any]] = {"none": {}, "top_k": {"top_k": 7}, "both": {"top_k": 7, "top_p": 0.8}}


@case(
    "ANY-8",
    subjects=["whole_sampler"],
    family=[None, "request_state"],
    batch=["greedy", "sampled", "mixed"],
    draft=["present", "absent"],
    limits=list(LIMITS),
    reach="the runner reads logits and drafts again after sampling: log-probabilities, the next step's drafts",
)
def test_inputs_are_left_as_they_were(
    engine: Engine, seed: int, subject: str, family: str | None, batch: str, draft: str, limits: str
) -> None:
    """`SamplerUnderTest` compares every field of the batch (of `subject`), bit for bit, after the call."""
    whole = sampler_of(engine, family)
    heat: Any = {"greedy": 0.0, "sampled": 0.8, "mixed": np.where(np.arange(len(COUNTS)) % 2, 0.0, 0.8)}[batch]
    rng = np.random.default_rng(seed)
    step = random_sampler_batch(
        rng, COUNTS, temperature=heat, draft=draft == "present", seeds=list(range(len(COUNTS))), **LIMITS[limits]
    )
    SamplerUnderTest(whole)(step)


@case(
    "ANY-4",
    subjects=["whole_sampler"],
    family=[None, "request_state", "fused"],
    batch=["greedy", "sampled", "mixed"],
    reach="a server samples step after step, from batches of other sizes and limits",
)
def test_later_calls_do_not_see_earlier_ones(
    engine: Engine, seed: int, subject: str, family: str | None, batch: str
) -> None:
    """Three batches (of `subject`) emit the same tokens again after thirty others of any size and limits.

    Each of the three follows each other one, so that what one of them left would show. The others of a greedy batch are
    greedy too.
    """
    sampler = SamplerUnderTest(sampler_of(engine, family))
    rng = np.random.default_rng(seed)

    def drawn(counts: tuple[int, ...], kind: str, **options: Any) -> SamplerBatch:
        heat = {"greedy": np.zeros(len(counts)), "sampled": np.full(len(counts), 0.9)}.get(kind)
        heat = np.where(np.arange(len(counts)) % 2, 0.0, 0.9) if heat is None else heat
        return random_sampler_batch(rng, counts, temperature=heat, seeds=list(range(len(counts))), **options)

    first = [drawn(COUNTS, batch, draft=i == 0, **LIMITS[limits]) for i, limits in enumerate(LIMITS)]
    emitted = [sampler(step) for step in first]
    for i in range(30):
        counts = tuple(rng.integers(0, 6, int(rng.integers(1, 12))).tolist())
        kind = batch if batch == "greedy" else ("greedy", "sampled", "mixed")[i % 3]
        sampler(drawn(counts, kind, draft=bool(rng.integers(2)), **LIMITS[list(LIMITS)[int(rng.integers(3))]]))
    for number in (2, 1, 0, 2, 0, 1, 2):
        before = emitted[number]
        if (now := sampler(first[number])) != before:
            b = next(b for b, (old, new) in enumerate(zip(before, now, strict=True)) if old != new)
            message = f"request {b} of batch {number} emitted {before[b]} at first, and {now[b]} after 30 other calls"
            raise Mismatch(Failure(Kind.VALUE, message))


@case(
    "ANY-10",
    subjects=["whole_sampler"],
    family=[None, "request_state", "fused"],
    quick=False,
    reach="a server samples step after step",
)
def test_steps_keep_nothing(engine: Engine, seed: int, subject: str, family: str | None) -> None:
    """Equal steps (of `subject`) of a mixed batch, whose logits have 500 KB or more."""
    sampler = SamplerUnderTest(sampler_of(engine, family))
    step = random_sampler_batch(
        np.random.default_rng(seed),
        COUNTS * 5,
        1000,
        temperature=np.tile(np.where(np.arange(len(COUNTS)) % 2, 0.0, 0.9), 5),
        seeds=list(range(len(COUNTS) * 5)),
    )
    assert_nothing_kept(lambda: sampler(step), STEPS, step.logits.nbytes // 4)

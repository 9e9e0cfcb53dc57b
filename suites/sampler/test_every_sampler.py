"""An end-to-end sampler leaves its inputs unchanged, whatever the batch (contract ANY)."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.sampling import random_sampler_batch
from verispec.engines import Engine
from verispec.judge import SamplerUnderTest, offered

COUNTS = (3, 0, 2, 5, 1, 0, 4)
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
    whole = offered(engine.sampler() if family is None else engine.sampler(family))
    heat: Any = {"greedy": 0.0, "sampled": 0.8, "mixed": np.where(np.arange(len(COUNTS)) % 2, 0.0, 0.8)}[batch]
    rng = np.random.default_rng(seed)
    step = random_sampler_batch(
        rng, COUNTS, temperature=heat, draft=draft == "present", seeds=list(range(len(COUNTS))), **LIMITS[limits]
    )
    SamplerUnderTest(whole)(step)

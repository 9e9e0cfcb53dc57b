"""Several ranks: tensor parallelism changes no text, and every rank has the same one (contract GEN)."""

from __future__ import annotations

from typing import Any

from verispec import fixtures
from verispec.cases import case
from verispec.engines.protocol.generation import GenerationRequest
from verispec.suites.e2e._reference_model import greedy_text, reference_model
from verispec.suites.e2e._setups import METHODS, Load, greedy, require

TARGET = fixtures.model("target")
LENGTH = 24
RANKS = 2
REACH = "tensor_parallel_size=2"


@case("GEN-40", draft=METHODS, sampling="greedy", reach=REACH)
def test_ranks_change_no_greedy_text(load: Load, prompts: Any, draft: str) -> None:
    """Rounding differs from that of one rank: every token is the target's, up to it."""
    generator = load(draft, tensor_parallel_size=RANKS)
    for n, result in enumerate(generator.generate(greedy(prompts[:4], LENGTH))):
        own = greedy_text(TARGET, tuple(prompts[n]), LENGTH)
        reference_model(TARGET).judge_equal(prompts[n], own, result.token_ids, f"prompt {n} on {RANKS} ranks")


@case("GEN-40", draft=METHODS, sampling="seeded", reach=REACH)
def test_ranks_change_no_seeded_text(load: Load, prompts: Any, draft: str) -> None:
    """In float64 no rounding of a sum reaches a threshold, so that texts and accepted drafts are equal."""
    asked = [
        GenerationRequest(prompt, max_tokens=LENGTH, ignore_eos=True, temperature=0.9, seed=n, top_p=1 - 0.05 * n)
        for n, prompt in enumerate(prompts[:4])
    ]
    several = load(draft, tensor_parallel_size=RANKS, dtype="float64").generate(asked)
    again = load(draft, tensor_parallel_size=RANKS, dtype="float64").generate(asked)
    one = load(draft, dtype="float64").generate(asked)
    for n, (result, repeated, wanted) in enumerate(zip(several, again, one, strict=True)):
        require(
            result.token_ids == repeated.token_ids, f"request {n}: the same seed gives another text on {RANKS} ranks"
        )
        require(
            result.token_ids == wanted.token_ids,
            f"request {n}: {result.token_ids} on {RANKS} ranks, {wanted.token_ids} on one",
        )
        counts = [[step.accepted for step in found.steps] for found in (result, wanted)]
        require(
            not all(counts) or counts[0] == counts[1],
            f"request {n}: accepted drafts per step {counts[0]} on {RANKS} ranks, {counts[1]} on one",
        )

"""Sampled generation with the counter-based RNG: a seed decides the text, on every platform (contract GEN)."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec import fixtures
from verispec.cases import case
from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import GenerationRequest
from verispec.judge import Inconclusive
from verispec.reference.proposers.ngram import lookup
from verispec.suites.e2e._counter_rng import Definition
from verispec.suites.e2e._reference_model import ReferenceModel, reference_head, reference_model
from verispec.suites.e2e._setups import DRAFTERS, Load, options_of, with_steps

TARGET = fixtures.model("target")
LENGTH = 20
TEXTS = 4
METHODS = ["none", "ngram k=3", "draft_model k=3", "eagle3 k=1"]
"""The reference model of an Eagle3 head knows first drafts only, since later ones read the head's own states."""


@case("GEN-17", draft=METHODS, sampler="request_state", memory=[None, "preemption"], reach="a request with a seed")
def test_a_seed_decides_the_text(load: Load, prompts: Any, seed: int, draft: str, memory: str | None) -> None:
    """Each decision is compared with the numbers of the request's seed, the position and the step.

    Greedy requests stand among the sampled ones, and prompts repeat a phrase, so that prompt lookup finds drafts and
    some are rejected.
    """
    asked = [
        GenerationRequest(
            (*prompt[:24], *prompt[:24], *prompt[:8]),
            max_tokens=LENGTH,
            temperature=(0.6, 1.0, 1.4)[n % 3],
            ignore_eos=True,
            seed=seed + 1000 * n,
        )
        for n, prompt in enumerate(prompts[24 : 24 + TEXTS])
    ]
    greedy = [GenerationRequest(prompt[:24], max_tokens=LENGTH, ignore_eos=True) for prompt in prompts[:2]]
    results = load(draft, memory or "", sampler="request_state").generate([greedy[0], *asked, greedy[1]])
    if memory and not any(result.preemptions for result in results):
        raise UnsupportedCall("the engine does not report preemptions")
    options = options_of(draft)
    most = options.get("num_speculative_tokens", 0)
    judged = 0
    for n, (request, result) in enumerate(zip(asked, with_steps(results[1:-1]), strict=True)):
        proposer: dict[str, Any] = {"drafter": drafter(options["method"]), "most": most}
        if options["method"] == "ngram":
            proposer["known"] = lambda sequence: lookup(np.array(sequence), 2, 4, most)
        definition = Definition(request, result.token_ids, reference_model(TARGET), **proposer)
        judged += definition.judge(result, f"prompt {n}")
    if draft != "none" and not judged:
        raise Inconclusive("no draft was verified")


def drafter(method: str) -> ReferenceModel | None:
    if method == "draft_model":
        return reference_model(fixtures.model(DRAFTERS[method]))
    return reference_head(fixtures.model(DRAFTERS[method]), TARGET) if method == "eagle3" else None

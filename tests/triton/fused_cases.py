"""Cases of the fused family: the batches of the slot-indexed family, with limits and the drafter's normaliser."""

from __future__ import annotations

from typing import Any

import numpy as np
from case_parts import POISON, Size, maker
from request_state_cases import batch_arguments

from verispec.reference import contracts
from verispec.reference.oracle._request_state import clean, logsumexp

_SHARED = ("one_hot", "greedy", "placeholder", "nan", "masked")


def _arguments(op: str, rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    names = {p.name for p in contracts.load(op).params}
    inputs = batch_arguments(rng, size, "draft" if variant in {"limits", "normaliser"} else variant)
    outputs = {n: np.full(size.requests, POISON, np.int32) for n in ("num_sampled", "num_rejected", "next_token")}
    outputs["next_row"] = np.full(size.requests, POISON, np.int32)
    outputs["sampled"] = np.full((size.requests, size.drafts + 2), POISON, np.int64)
    states = len(inputs["temperature"])
    limits = {"top_k": None, "top_p": None}
    if variant == "limits":
        limits = {
            "top_k": np.resize([0, 7, size.vocabulary // 2], states).astype(np.int32),
            "top_p": np.resize([0.9, 1.0, 0.3, 0.7], states).astype(np.float32),
        }
    normaliser = None
    if variant == "normaliser":
        shared = min(inputs["target_logits"].shape[1], inputs["draft_logits"].shape[2])
        scale = np.where(inputs["temperature"] == 0, 1.0, inputs["temperature"])
        normaliser = np.array(
            [
                [logsumexp(clean(row[:shared]) / t) for row in rows]
                for rows, t in zip(inputs["draft_logits"], scale, strict=True)
            ],
            np.float32,
        )
    given = outputs | inputs | limits | {"draft_normaliser": normaliser}
    return {name: value for name, value in given.items() if name in names}


@maker("greedy", "nan", "masked")
def verify_greedy(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    return _arguments("verify_greedy", rng, size, variant)


@maker(*_SHARED, "limits")
def verify_one_hot(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    return _arguments("verify_one_hot", rng, size, variant)


@maker("draft", "placeholder", "nan", "masked", "narrow_draft", "limits", "normaliser")
def verify_draft_logits(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    return _arguments("verify_draft_logits", rng, size, variant)

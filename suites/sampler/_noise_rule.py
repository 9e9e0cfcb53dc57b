"""Tokens that follow from the random numbers of a traced request, by the rule of rejection sampling."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.cases.sampling import target_distribution
from verispec.engines.protocol.sampling import SamplerBatch

MARGIN = 1e-4
"""Relative distance from a tie below which a float32 engine may decide otherwise than float64."""


def by_rule(step: SamplerBatch, b: int, uniform: Any, noise: Any) -> tuple[list[int], bool] | None:
    """Return request b's accepted drafts, its recovered token, and True if a draft was rejected; None at a near tie."""
    emitted: list[int] = []
    first = sum(step.counts[:b])
    for j, token in enumerate(step.draft_token_ids[b]):
        p = target_distribution(step, b, j)
        q = np.zeros(len(p)) if step.draft_probs is None else step.draft_probs[first + j].double().numpy()
        ratio = p[token] / (q[token] if step.draft_probs is not None else 1.0)
        if abs(ratio - uniform[j]) <= MARGIN * uniform[j]:
            return None
        if ratio >= uniform[j]:
            emitted.append(token)
            continue
        residual = (
            np.maximum(p - q, 0.0) if step.draft_probs is not None else np.where(np.arange(len(p)) == token, 0.0, p)
        )
        score = residual / noise
        best = np.argsort(score)[::-1]
        if score[best[1]] >= (1 - MARGIN) * score[best[0]]:
            return None
        return [*emitted, int(best[0])], True
    return emitted, False

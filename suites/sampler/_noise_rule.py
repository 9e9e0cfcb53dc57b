"""Tokens that follow from the random numbers of a traced request, by the rule of rejection sampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from verispec.cases.sampling import target_distribution
from verispec.engines.protocol.sampling import SamplerBatch, Trace

Array = np.ndarray[Any, Any]

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


MISTAKES: dict[str, Callable[[Array], Array]] = {
    "the first number tests every draft": lambda u: np.full_like(u, u[0]),
    "the last number tests every draft": lambda u: np.full_like(u, u[-1]),
    "each draft is tested by the number after its own": lambda u: np.roll(u, -1),
    "each draft is tested by the number before its own": lambda u: np.roll(u, 1),
    "the numbers are taken in reverse order": lambda u: u[::-1],
    "a draft is tested by 1 - u": lambda u: 1 - u,
    "every draft is accepted": np.zeros_like,
    "every draft is rejected": lambda u: np.full_like(u, 1e300),
}
"""Mistakes of a sampler in words, each with the numbers that it then compares p/q with, given its own ones."""


def mistake_of(steps: Sequence[tuple[SamplerBatch, Trace]]) -> str:
    """Return which of `MISTAKES` explain all tokens but bonus tokens, the likelier first; empty for none."""
    found = [mistake for mistake, numbers in MISTAKES.items() if all(_explains(numbers, *step) for step in steps)]
    return " or ".join(found)


def _explains(numbers: Callable[[Array], Array], step: SamplerBatch, trace: Trace) -> bool:
    for b, own in enumerate(trace.draws):
        if own is None or not step.counts[b] or float(step.temperature[b]) == 0:
            continue
        ruled = by_rule(step, b, numbers(own.uniform.numpy()), own.noise.double().numpy())
        if ruled is not None and ruled[0] != list(trace.tokens[b] if ruled[1] else trace.tokens[b][:-1]):
            return False
    return True

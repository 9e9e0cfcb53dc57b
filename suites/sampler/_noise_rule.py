"""Tokens that follow from the random numbers of a traced request, by the rule of rejection sampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
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

SHARED: dict[str, Callable[[Array, Array], Array]] = {
    "a draft is tested by the number u of a token's noise -log(u)": lambda u, noise: np.exp(-noise[: len(u)]),
    "a draft is tested by the number u of a token's noise -log(1 - u)": lambda u, noise: -np.expm1(-noise[: len(u)]),
}
"""Mistakes of a sampler in words, each with the numbers that it compares p/q with, given its own ones and the noise."""


def _of_request(shift: int) -> Callable[[SamplerBatch], SamplerBatch]:
    """Return a batch's alteration: each request has the temperature of the one `shift` places on."""
    return lambda step: replace(step, temperature=step.temperature.roll(-shift))


def _target_row(shift: int) -> Callable[[SamplerBatch], SamplerBatch]:
    """Return a batch's alteration: each row of the target is the one `shift` rows on, where there is one."""
    return lambda step: replace(step, logits=step.logits[_shifted(len(step.logits), shift)])


def _draft_row(shift: int) -> Callable[[SamplerBatch], SamplerBatch]:
    """Return a batch's alteration: each row of the draft is the one `shift` rows on, where there is one."""
    return lambda step: (
        step
        if step.draft_probs is None
        else replace(step, draft_probs=step.draft_probs[_shifted(len(step.draft_probs), shift)])
    )


def _shifted(rows: int, shift: int) -> Array:
    return np.clip(np.arange(rows) + shift, 0, rows - 1)


MISREAD: dict[str, Callable[[SamplerBatch], SamplerBatch]] = {
    "a request has the temperature of the next one": _of_request(1),
    "a request has the temperature of the one before": _of_request(-1),
    "every request has the temperature of the first one": lambda step: replace(
        step, temperature=step.temperature[:1].expand(len(step.temperature))
    ),
    "the temperature is not applied": lambda step: replace(
        step, temperature=step.temperature.new_ones(1).expand_as(step.temperature)
    ),
    "a draft is tested by the target's row after its own": _target_row(1),
    "a draft is tested by the target's row before its own": _target_row(-1),
    "a draft is tested by the draft's row after its own": _draft_row(1),
    "a draft is tested by the draft's row before its own": _draft_row(-1),
}
"""Mistakes of a sampler in words, each with the batch that it then reads."""


def mistake_of(steps: Sequence[tuple[SamplerBatch, Trace]]) -> str:
    """Return which of `MISTAKES`, `SHARED` and `MISREAD` explain all tokens but bonus tokens; empty for none."""
    own = {name: lambda u, _, change=change: change(u) for name, change in MISTAKES.items()}
    numbers = {**own, **SHARED}
    found = [name for name, change in numbers.items() if all(_explains(*step, numbers=change) for step in steps)]
    found += [name for name, read in MISREAD.items() if all(_explains(*step, read=read) for step in steps)]
    return " or ".join(found)


def _explains(
    step: SamplerBatch,
    trace: Trace,
    *,
    numbers: Callable[[Array, Array], Array] = lambda u, noise: u,
    read: Callable[[SamplerBatch], SamplerBatch] = lambda step: step,
) -> bool:
    mistaken = read(step)
    for b, own in enumerate(trace.draws):
        if own is None or not step.counts[b] or float(step.temperature[b]) == 0:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):  # another row's q may be 0 at a draft
            noise = own.noise.double().numpy()
            ruled = by_rule(mistaken, b, numbers(own.uniform.numpy(), noise), noise)
        if ruled is not None and ruled[0] != list(trace.tokens[b] if ruled[1] else trace.tokens[b][:-1]):
            return False
    return True

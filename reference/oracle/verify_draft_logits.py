"""Oracle of verify_draft_logits: the contract's clauses, executed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from verispec.reference.contracts._fused import TRIALS
from verispec.reference.oracle._fused import (
    LEAST,
    Numbers,
    Outcome,
    Rounding,
    Row,
    Weights,
    argmax_of,
    at_least,
    exceeds,
    inverse_cdf,
    limit,
    relative,
    verify,
    weights,
)
from verispec.reference.oracle._request_state import clean, log_prob

Array = np.ndarray[Any, Any]

BARELY = 1e-280
"""Largest draft probability whose ratio to one below `LEAST` is taken for unknown."""


def rows(
    *,
    target_logits: Array,
    draft_logits: Array,
    pos: Array,
    temperature: Array,
    seed: Array,
    top_k: Array | None = None,
    top_p: Array | None = None,
    draft_normaliser: Array | None = None,
    **_: Any,
) -> Row:
    vocabulary = min(target_logits.shape[1], draft_logits.shape[2])
    argmax = argmax_of(target_logits[:, :vocabulary])

    def rule(state: int, row: int, step: int, draft: int, rounding: Rounding) -> Iterator[Outcome]:
        target, scale = target_logits[row, :vocabulary], float(temperature[state])
        if scale == 0.0:
            best = argmax(row)
            yield draft == best, best
            return
        numbers = Numbers(int(seed[state]), int(pos[row]), step)
        for weight in weights(target, scale, limit(top_k, state), limit(top_p, state), rounding):
            if not 0 <= draft < vocabulary or step >= draft_logits.shape[1] or not weight.kept.sum() > 0.0:
                for token in weight.draw(numbers, rounding):
                    yield False, token
            else:
                yield from verified(weight, draft_probs(state, step, scale), draft, numbers, rounding)

    def draft_probs(state: int, step: int, scale: float) -> Array:
        logits = clean(draft_logits[state, step, :vocabulary])
        if draft_normaliser is not None:
            return at_least(np.exp(log_prob(logits / scale, float(draft_normaliser[state, step]))), logits)
        weight = relative(logits, scale)
        q: Array = weight / (weight.sum() or 1.0)
        return q

    return rule


def verified(weight: Weights, q: Array, draft: int, numbers: Numbers, rounding: Rounding) -> Iterator[Outcome]:
    """Yield the outcomes for a draft of distribution `q`: accepted, or a token of norm(max(p - q, 0))."""
    p = weight.kept / weight.kept.sum()
    share = numbers.acceptance() * q[draft]
    answers = exceeds(p[draft], share, rounding.accept * share)
    if 0.0 < p[draft] <= LEAST:  # as 0, except that a kernel which compares logarithms knows its ratio to a small q
        answers = {True, False} if rounding.accept and q[draft] <= BARELY else {False}
    if True in answers:
        yield True, draft
    if False not in answers:
        return
    for t in range(TRIALS):
        u, v = numbers.trial(t)
        goes_on = False
        for candidate in inverse_cdf(weight.pool, u, rounding.draw):
            answers = exceeds(p[candidate] - q[candidate], v * p[candidate], rounding.accept * q[candidate])
            if True in answers:
                yield False, candidate
            goes_on |= False in answers
        if not goes_on:
            return
    residual = np.maximum(p - q, 0.0)
    mass = residual.sum()
    u, _ = numbers.trial(TRIALS)
    # Rounding moves a boundary by a share of the whole mass of p, which is 1.
    if mass > 0.0:
        yield from ((False, token) for token in inverse_cdf(residual, u, rounding.draw / mass))
    if not mass > rounding.draw:
        yield from ((False, token) for token in inverse_cdf(p, u, rounding.draw))


def verify_draft_logits(
    *,
    sampled: Array,
    num_sampled: Array,
    num_rejected: Array,
    next_token: Array,
    next_row: Array,
    target_logits: Array,
    draft_logits: Array,
    draft_sampled: Array,
    cu_num_logits: Array,
    idx_mapping: Array,
    pos: Array,
    temperature: Array,
    seed: Array,
    top_k: Array | None = None,
    top_p: Array | None = None,
    draft_normaliser: Array | None = None,
) -> dict[str, Array]:
    inputs = dict(locals())
    return verify(inputs, rows(**inputs))

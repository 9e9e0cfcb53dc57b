"""Oracle of verify_one_hot: the contract's clauses, executed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from verispec.reference.oracle._fused import (
    Numbers,
    Outcome,
    Rounding,
    Row,
    argmax_of,
    exceeds,
    limit,
    verify,
    weights,
)

Array = np.ndarray[Any, Any]


def rows(
    *,
    target_logits: Array,
    pos: Array,
    temperature: Array,
    seed: Array,
    top_k: Array | None = None,
    top_p: Array | None = None,
    **_: Any,
) -> Row:
    argmax = argmax_of(target_logits)

    def rule(state: int, row: int, step: int, draft: int, rounding: Rounding) -> Iterator[Outcome]:
        logits, scale = target_logits[row], float(temperature[state])
        if scale == 0.0:
            best = argmax(row)
            yield draft == best, best
            return
        numbers = Numbers(int(seed[state]), int(pos[row]), step)
        for weight in weights(logits, scale, limit(top_k, state), limit(top_p, state), rounding):
            others = weight
            if 0 <= draft < len(weight.kept):
                share = numbers.acceptance() * weight.kept.sum()
                answers = exceeds(weight.kept[draft], share, rounding.accept * share)
                if True in answers:
                    yield True, draft
                if False not in answers:
                    continue
                others = weight.without(draft)
            for token in (others if others.kept.sum() > 0.0 else weight).draw(numbers, rounding):
                yield False, token

    return rule


def verify_one_hot(
    *,
    sampled: Array,
    num_sampled: Array,
    num_rejected: Array,
    next_token: Array,
    next_row: Array,
    target_logits: Array,
    draft_sampled: Array,
    cu_num_logits: Array,
    idx_mapping: Array,
    pos: Array,
    temperature: Array,
    seed: Array,
    top_k: Array | None = None,
    top_p: Array | None = None,
) -> dict[str, Array]:
    inputs = dict(locals())
    return verify(inputs, rows(**inputs))

"""Oracle of verify_one_hot: the contract's clauses, executed."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.reference.oracle._fused import Numbers, inverse_cdf, limit, verify_rows, weights
from verispec.reference.oracle._request_state import clean

Array = np.ndarray[Any, Any]


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
    outputs = {
        "sampled": sampled.copy(),
        "num_sampled": num_sampled.copy(),
        "num_rejected": num_rejected.copy(),
        "next_token": next_token.copy(),
        "next_row": next_row.copy(),
    }

    def rule(state: int, row: int, step: int, draft: int) -> tuple[bool, int]:
        if temperature[state] == 0.0:
            best = int(clean(target_logits[row]).argmax())
            return draft == best, best
        weight = weights(target_logits[row], float(temperature[state]), limit(top_k, state), limit(top_p, state))
        numbers = Numbers(int(seed[state]), int(pos[row]), step)
        if 0 <= draft < len(weight):
            if weight[draft] > numbers.acceptance() * weight.sum():
                return True, draft
            others = weight.copy()
            others[draft] = 0.0
            if others.sum() > 0.0:
                weight = others
        return False, inverse_cdf(weight, numbers.trial(0)[0])

    verify_rows(outputs, cu_num_logits, idx_mapping, draft_sampled, rule)
    return outputs

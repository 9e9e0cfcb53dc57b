"""Oracle of verify_draft_logits: the contract's clauses, executed."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.reference.contracts._fused import TRIALS
from verispec.reference.oracle._fused import Numbers, inverse_cdf, limit, verify_rows, weights
from verispec.reference.oracle._request_state import clean, log_prob, logsumexp

Array = np.ndarray[Any, Any]


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
    outputs = {
        "sampled": sampled.copy(),
        "num_sampled": num_sampled.copy(),
        "num_rejected": num_rejected.copy(),
        "next_token": next_token.copy(),
        "next_row": next_row.copy(),
    }
    vocabulary = min(target_logits.shape[1], draft_logits.shape[2])

    def rule(state: int, row: int, step: int, draft: int) -> tuple[bool, int]:
        scale = float(temperature[state])
        target = target_logits[row, :vocabulary]
        if scale == 0.0:
            best = int(clean(target).argmax())
            return draft == best, best
        weight = weights(target, scale, limit(top_k, state), limit(top_p, state))
        numbers = Numbers(int(seed[state]), int(pos[row]), step)
        total = weight.sum()
        if not total > 0.0:
            return False, 0
        if not 0 <= draft < vocabulary or step >= draft_logits.shape[1]:
            return False, inverse_cdf(weight, numbers.trial(0)[0])
        p = weight / total
        log_q = clean(draft_logits[state, step, :vocabulary]) / scale
        log_q = log_prob(log_q, logsumexp(log_q) if draft_normaliser is None else float(draft_normaliser[state, step]))
        q = np.exp(log_q)
        if p[draft] > numbers.acceptance() * q[draft]:
            return True, draft
        for t in range(TRIALS):
            u, v = numbers.trial(t)
            candidate = inverse_cdf(p, u)
            if v * p[candidate] < p[candidate] - q[candidate]:
                return False, candidate
        residual = np.maximum(p - q, 0.0)
        u, _ = numbers.trial(TRIALS)
        return False, inverse_cdf(residual if residual.sum() > 0.0 else p, u)

    verify_rows(outputs, cu_num_logits, idx_mapping, draft_sampled, rule)
    return outputs

"""Oracle of residual_resample: the contract's clauses, executed."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.reference.oracle._request_state import clean, log_prob, request_rows, shared_vocabulary
from verispec.reference.oracle.philox import Draw, gumbel

Array = np.ndarray[Any, Any]


def residual_resample(
    *,
    sampled: Array,
    num_sampled: Array,
    num_accepted: Array,
    target_logsumexp: Array,
    draft_logsumexp: Array,
    log_prefix_ratio: Array | None,
    target_logits: Array,
    draft_logits: Array | None,
    draft_sampled: Array,
    cu_num_logits: Array,
    pos: Array,
    idx_mapping: Array,
    temperature: Array,
    seed: Array,
) -> dict[str, Array]:
    tokens, counts = sampled.copy(), num_sampled.copy()
    vocabulary = shared_vocabulary(target_logits, draft_logits)
    for b, state, first, drafts in request_rows(cu_num_logits, idx_mapping):
        step = int(num_accepted[b])
        counts[b] = step + 1
        row, scale = first + step, float(temperature[state])
        target = clean(target_logits[row, :vocabulary])
        is_bonus = step == drafts
        if scale == 0.0:
            if is_bonus:
                tokens[b, step] = target.argmax()
            continue
        log_r = target
        draft = -1 if is_bonus else int(draft_sampled[row + 1])
        has_step = draft_logits is None or step < draft_logits.shape[1]
        if has_step and 0 <= draft < vocabulary:
            if draft_logits is None:
                log_r = np.where(np.arange(vocabulary) == draft, -np.inf, target)
            else:
                log_p = log_prob(target, float(target_logsumexp[b]))
                if log_prefix_ratio is not None:
                    log_p = log_p + float(log_prefix_ratio[b])
                log_q = log_prob(clean(draft_logits[state, step, :vocabulary]) / scale, float(draft_logsumexp[b]))
                log_r = log_residual(log_p, log_q)
        noise = gumbel(int(seed[state]), int(pos[row]), step, Draw.TARGET, vocabulary)
        has_mass = log_r.max() > -np.inf
        tokens[b, step] = (log_r + noise if has_mass else target + noise).argmax()
    return {"sampled": tokens, "num_sampled": counts}


def log_residual(log_p: Array, log_q: Array) -> Array:
    """Return log(max(p - q, 0)) as log p + log1p(-q/p), minus infinity where q >= p."""
    out = np.full(len(log_p), -np.inf)
    for x in range(len(log_p)):
        if log_p[x] > log_q[x]:
            out[x] = log_p[x] + np.log1p(-np.exp(log_q[x] - log_p[x]))
    return out

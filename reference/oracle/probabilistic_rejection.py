"""Oracle of probabilistic_rejection: the contract's clauses, executed."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.reference.oracle._request_state import accept_while_argmax, verified_requests

Array = np.ndarray[Any, Any]


def probabilistic_rejection(
    *,
    sampled: Array,
    num_accepted: Array,
    target_logsumexp: Array,
    draft_logsumexp: Array,
    target_logits: Array,
    draft_logits: Array | None,
    draft_sampled: Array,
    cu_num_logits: Array,
    pos: Array,
    idx_mapping: Array,
    expanded_idx_mapping: Array,
    expanded_local_pos: Array,
    temperature: Array,
    seed: Array,
) -> dict[str, Array]:
    tokens, accepted = sampled.copy(), num_accepted.copy()
    target_lse, draft_lse = target_logsumexp.copy(), draft_logsumexp.copy()
    for b, state, steps in verified_requests(
        cu_num_logits, idx_mapping, target_logits, draft_logits, draft_sampled, pos, temperature, seed
    ):
        if temperature[state] == 0.0:
            accepted[b] = accept_while_argmax(steps, tokens[b])
            continue
        accepted[b] = len(steps)
        for i, step in enumerate(steps):
            if not (step.is_valid and step.p_draft > step.log_u + step.q_draft):
                accepted[b] = i
                if step.is_valid:
                    target_lse[b], draft_lse[b] = step.target_logsumexp, step.draft_logsumexp
                break
            tokens[b, i] = step.draft
    return {
        "sampled": tokens,
        "num_accepted": accepted,
        "target_logsumexp": target_lse,
        "draft_logsumexp": draft_lse,
    }

"""Oracle of block_verification: the contract's clauses, executed."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.reference.oracle._request_state import DraftRow, accept_while_argmax, verified_requests

Array = np.ndarray[Any, Any]


def log_joint_ratios(steps: list[DraftRow]) -> list[float]:
    """Return log r[i] after each draft token up to the first padding token (Sun et al. 2024, equation 4)."""
    ratios, log_r = [], 0.0
    for step in steps:
        if not step.is_valid:
            break
        # Zero stays zero, even if q is zero.
        is_zero = -np.inf in (log_r, step.p_draft)
        log_r = -np.inf if is_zero else min(log_r + step.p_draft - step.q_draft, 0.0)
        ratios.append(log_r)
    return ratios


def threshold(ratio: float, following: DraftRow | None) -> float:
    """Return h of a prefix with joint ratio `ratio`; `following` is the next row, None at the end of the block."""
    if following is None:
        return ratio
    p = np.exp(following.log_p)
    if following.log_q is None:
        mass = ratio * (1.0 - p[following.draft])
    else:
        mass = np.maximum(ratio * p - np.exp(following.log_q), 0.0).sum()
    rest = mass + 1.0 - ratio
    return float(mass / rest) if rest > 0.0 else 1.0


def block_verification(
    *,
    sampled: Array,
    num_accepted: Array,
    target_logsumexp: Array,
    draft_logsumexp: Array,
    log_prefix_ratio: Array,
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
    target_lse, draft_lse, log_ratio = target_logsumexp.copy(), draft_logsumexp.copy(), log_prefix_ratio.copy()
    for b, state, steps in verified_requests(
        cu_num_logits, idx_mapping, target_logits, draft_logits, draft_sampled, pos, temperature, seed
    ):
        if temperature[state] == 0.0:
            accepted[b] = accept_while_argmax(steps, tokens[b])
            continue
        ratios = log_joint_ratios(steps)
        accepted[b] = 0
        for i, log_r in enumerate(ratios):
            following = steps[i + 1] if i + 1 < len(ratios) else None
            if np.exp(steps[i].log_u) <= threshold(float(np.exp(log_r)), following):
                accepted[b] = i + 1
        tokens[b, : accepted[b]] = [step.draft for step in steps[: accepted[b]]]
        if accepted[b] < len(ratios):
            rejected = steps[accepted[b]]
            target_lse[b], draft_lse[b] = rejected.target_logsumexp, rejected.draft_logsumexp
            log_ratio[b] = ratios[accepted[b] - 1] if accepted[b] else 0.0
    return {
        "sampled": tokens,
        "num_accepted": accepted,
        "target_logsumexp": target_lse,
        "draft_logsumexp": draft_lse,
        "log_prefix_ratio": log_ratio,
    }

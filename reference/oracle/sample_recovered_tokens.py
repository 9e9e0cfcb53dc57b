"""Oracle of sample_recovered_tokens: the contract's clauses, executed.

The contract states the rounding of difference and product (float32, then the noise's precision), since it decides
between near-equal scores.
"""

from __future__ import annotations

import numpy as np

from verispec.reference.oracle._rows import Array, draft_rows


def sample_recovered_tokens(
    *,
    output_token_ids_ptr: Array,
    cu_num_draft_tokens_ptr: Array,
    draft_token_ids_ptr: Array,
    draft_probs_ptr: Array | None,
    target_probs_ptr: Array,
    inv_q_ptr: Array,
    vocab_size: int,
    BLOCK_SIZE: int,
    NO_DRAFT_PROBS: bool,
    USE_FP64_GUMBEL: bool,
) -> dict[str, Array]:
    output = output_token_ids_ptr.copy()
    for b, start, end in draft_rows(cu_num_draft_tokens_ptr):
        for token in range(start, end):
            target = target_probs_ptr[token].astype(np.float32)
            if NO_DRAFT_PROBS or draft_probs_ptr is None:
                residual = target.copy()
                if 0 <= draft_token_ids_ptr[token] < vocab_size:
                    residual[draft_token_ids_ptr[token]] = 0
            else:
                with np.errstate(invalid="ignore"):
                    residual = target - draft_probs_ptr[token].astype(np.float32)
            winner = largest(residual, inv_q_ptr[b])
            if winner is None:
                winner = largest(target, inv_q_ptr[b])
            output[token] = 0 if winner is None else winner
    return {"output_token_ids_ptr": output}


def largest(mass: Array, inv_q: Array) -> int | None:
    """Return the lowest id with the largest mass * inv_q among entries of positive mass, None if there is none."""
    with np.errstate(over="ignore", invalid="ignore"):
        scores = np.where(mass > 0, mass.astype(inv_q.dtype) * inv_q, -np.inf)
    winner = int(np.argmax(np.where(np.isnan(scores), -np.inf, scores)))
    return winner if mass[winner] > 0 else None

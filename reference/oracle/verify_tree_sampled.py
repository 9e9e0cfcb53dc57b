"""Oracle of verify_tree_sampled: the contract's clauses, executed."""

from __future__ import annotations

import numpy as np

from verispec.reference.oracle._rows import Array
from verispec.reference.oracle._tree import children, draw, power_of_two, total, walk, weights


def verify_tree_sampled(
    *,
    predicts: Array,
    accept_index: Array,
    accept_token_num: Array,
    candidates: Array,
    retrieve_index: Array,
    retrieve_next_token: Array,
    retrieve_next_sibling: Array,
    uniform_samples: Array,
    uniform_samples_for_final_sampling: Array,
    target_probs: Array,
    draft_probs: Array | None,
    WITHOUT_REPLACEMENT: bool,
) -> dict[str, Array]:
    vocab = target_probs.shape[2]

    def step(b: int, node: int, place: int, is_full: bool) -> tuple[int | None, int]:
        # p and q are weights whose sums are p_sum and q_sum: no division, and so no rounding of its own.
        p, p_sum = weights(target_probs[b, node]), 1.0
        q, q_sum = None if draft_probs is None else weights(draft_probs[b, node]), 1.0
        for child in () if is_full else children(retrieve_next_token[b, node], retrieve_next_sibling[b]):
            token = int(candidates[b, child])
            if not 0 <= token < vocab or not 0 <= retrieve_index[b, child] < len(predicts):
                continue
            q_token = 1.0 if q is None else float(q[token])
            if not q_token > 0:
                continue
            if np.float64(uniform_samples[b, child]) * (p_sum * q_token) < q_sum * p[token]:
                return child, token
            left = p.copy()
            left[token] = 0.0
            if q is not None:
                left = np.maximum(q_sum * p - p_sum * q, 0.0)
            left_sum = total(left)
            if not left_sum > 0:
                break
            scale = power_of_two(left_sum)
            p, p_sum = left * scale, left_sum * scale
            if q is not None and WITHOUT_REPLACEMENT:
                q[token] = 0.0
                scale = power_of_two(total(q))
                q, q_sum = q * scale, total(q) * scale
        return None, draw(p, uniform_samples_for_final_sampling[b])

    return walk(predicts, accept_index, accept_token_num, retrieve_index, step)

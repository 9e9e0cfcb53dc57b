"""Oracle of verify_tree_typical: the contract's clauses, executed."""

from __future__ import annotations

import numpy as np

from verispec.reference.oracle._rows import Array
from verispec.reference.oracle._tree import children, draw, walk, weights


def verify_tree_typical(
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
    threshold_single: float,
    threshold_acc: float,
) -> dict[str, Array]:
    vocab = target_probs.shape[2]
    divisor = max(threshold_acc, 1e-9)

    def step(b: int, node: int, place: int, is_full: bool) -> tuple[int | None, int]:
        p = weights(target_probs[b, node])
        left, tried = p.copy(), 0.0
        u = np.float64(uniform_samples[b, node])
        for child in () if is_full else children(retrieve_next_token[b, node], retrieve_next_sibling[b]):
            token = int(candidates[b, child])
            if not 0 <= token < vocab or not 0 <= retrieve_index[b, child] < len(predicts):
                continue
            tried += float(p[token])
            if p[token] > 0 and (u < tried / divisor or p[token] >= threshold_single):
                return child, token
            left[token] = 0.0
        return None, draw(left, uniform_samples_for_final_sampling[b])

    return walk(predicts, accept_index, accept_token_num, retrieve_index, step)

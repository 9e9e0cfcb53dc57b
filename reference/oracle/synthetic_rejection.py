"""Oracle of synthetic_rejection: the contract's clauses, executed."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.reference.oracle._request_state import request_rows
from verispec.reference.oracle.philox import Draw, uniform

Array = np.ndarray[Any, Any]


def synthetic_rejection(
    *,
    sampled: Array,
    num_sampled: Array,
    target_sampled: Array,
    draft_sampled: Array,
    cu_num_logits: Array,
    pos: Array,
    idx_mapping: Array,
    seed: Array,
    acceptance_rates: Array,
) -> dict[str, Array]:
    tokens, counts = sampled.copy(), num_sampled.copy()
    for b, state, first, drafts in request_rows(cu_num_logits, idx_mapping):
        step = 0
        while step < drafts:
            row = first + step
            draft = int(draft_sampled[row + 1])
            rate = float(acceptance_rates[step]) if step < len(acceptance_rates) else 0.0
            if draft < 0 or not uniform(int(seed[state]), int(pos[row]), step, Draw.ACCEPT) < rate:
                break
            tokens[b, step] = draft
            step += 1
        tokens[b, step] = target_sampled[first + step]
        counts[b] = step + 1
    return {"sampled": tokens, "num_sampled": counts}

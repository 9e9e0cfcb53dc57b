"""Oracle of verify_greedy: the contract's clauses, executed."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.reference.oracle._fused import verify_rows
from verispec.reference.oracle._request_state import clean

Array = np.ndarray[Any, Any]


def verify_greedy(
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
) -> dict[str, Array]:
    outputs = {
        "sampled": sampled.copy(),
        "num_sampled": num_sampled.copy(),
        "num_rejected": num_rejected.copy(),
        "next_token": next_token.copy(),
        "next_row": next_row.copy(),
    }

    def rule(state: int, row: int, step: int, draft: int) -> tuple[bool, int]:
        best = int(clean(target_logits[row]).argmax())
        return draft == best, best

    verify_rows(outputs, cu_num_logits, idx_mapping, draft_sampled, rule)
    return outputs

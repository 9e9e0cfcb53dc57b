"""Oracle of verify_greedy: the contract's clauses, executed."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.reference.oracle._fused import Outcome, Rounding, Row, verify
from verispec.reference.oracle._request_state import clean

Array = np.ndarray[Any, Any]


def rows(*, target_logits: Array, **_: Any) -> Row:
    def rule(state: int, row: int, step: int, draft: int, rounding: Rounding) -> list[Outcome]:
        best = int(clean(target_logits[row]).argmax())
        return [(draft == best, best)]

    return rule


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
    inputs = dict(locals())
    return verify(inputs, rows(**inputs))

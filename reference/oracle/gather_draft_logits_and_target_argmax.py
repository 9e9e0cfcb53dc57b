"""Oracle of gather_draft_logits_and_target_argmax: the contract's clauses, executed."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.reference.oracle._request_state import clean, shared_vocabulary

Array = np.ndarray[Any, Any]


def gather_draft_logits_and_target_argmax(
    *,
    local_max: Array,
    local_argmax: Array,
    gathered_draft_logits: Array | None,
    target_logits: Array,
    draft_logits: Array | None,
    expanded_idx_mapping: Array,
    expanded_local_pos: Array,
    temperature: Array,
    BLOCK_SIZE: int,
) -> dict[str, Array]:
    maxima, argmaxes = local_max.copy(), local_argmax.copy()
    gathered = None if gathered_draft_logits is None else gathered_draft_logits.copy()
    vocabulary = shared_vocabulary(target_logits, draft_logits)
    rows = len(target_logits)
    for row in range(rows):
        state = expanded_idx_mapping[row]
        is_last = row + 1 == rows or expanded_idx_mapping[row + 1] < 0 or expanded_local_pos[row + 1] == 0
        if state < 0 or is_last:
            continue
        if temperature[state] == 0.0:
            logits = clean(target_logits[row, :vocabulary])
            for g, start in zip(range(maxima.shape[1]), range(0, vocabulary, BLOCK_SIZE), strict=False):
                block = logits[start : start + BLOCK_SIZE]
                maxima[row, g] = block.max()
                argmaxes[row, g] = start + block.argmax()
        elif gathered is not None and draft_logits is not None:
            columns = min(vocabulary, gathered.shape[1])
            gathered[row, :columns] = draft_logits[state, expanded_local_pos[row], :columns]
    outputs = {"local_max": maxima, "local_argmax": argmaxes}
    if gathered is not None:
        outputs["gathered_draft_logits"] = gathered
    return outputs

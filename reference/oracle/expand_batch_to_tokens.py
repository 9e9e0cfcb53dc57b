"""Oracle of expand_batch_to_tokens: the contract's clauses, executed."""

from __future__ import annotations

from typing import Any

import numpy as np


def expand_batch_to_tokens(
    *,
    output_ptr: np.ndarray[Any, Any],
    input_ptr: np.ndarray[Any, Any],
    cu_num_tokens_ptr: np.ndarray[Any, Any],
    replace_from: float,
    replace_to: float,
    MAX_NUM_TOKENS: int,
) -> dict[str, np.ndarray[Any, Any]]:
    output = output_ptr.copy()
    start = 0
    for b, end in enumerate(cu_num_tokens_ptr):
        value = replace_to if input_ptr[b] == replace_from else input_ptr[b]
        for i in range(start, end):
            output[i] = value
        start = end
    return {"output_ptr": output}

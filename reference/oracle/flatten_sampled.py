"""Oracle of flatten_sampled: the contract's clauses, executed."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def flatten_sampled(
    *, flat_sampled: Array, sampled: Array, num_sampled: Array, cu_num_logits: Array
) -> dict[str, Array]:
    flat = flat_sampled.copy()
    for b in range(len(num_sampled)):
        first, end = int(cu_num_logits[b]), int(cu_num_logits[b + 1])
        for i in range(min(int(num_sampled[b]), end - first, sampled.shape[1])):
            flat[first + i] = sampled[b, i]
    return {"flat_sampled": flat}

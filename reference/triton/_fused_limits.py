"""Top-k and top-p of the fused kernels: thresholds of the rows of all sampled requests."""

from __future__ import annotations

from typing import Any

import triton

from ._fused_rows import CHUNK, Requests, TargetRows
from ._logit_keys import KeyRows, Owners
from ._thresholds import find_thresholds


def target_rows(logits: Any, vocabulary: int, requests: Requests, top_k: Any = None, top_p: Any = None) -> TargetRows:
    """Return target rows with the thresholds of their requests' limits; top-p is at the request's temperature.

    Args:
        logits: [L, at least vocabulary], before temperature.
        vocabulary: tokens of a row that count.
        requests: the batch.
        top_k: [R] tokens to keep by state, or None.
        top_p: [R] probability to keep by state, or None.
    """
    plain = TargetRows(logits, *logits.stride())
    count = requests.count * requests.columns
    if (top_k is None and top_p is None) or count == 0:
        return plain
    k, p = (None if values is None else values.contiguous() for values in (top_k, top_p))
    owners = Owners(requests.cu_num_logits, requests.idx_mapping, requests.temperature, requests.columns)
    chunks = triton.cdiv(vocabulary, CHUNK.value)
    rows = KeyRows(logits, *logits.stride(), k, p, vocabulary, chunks, owners)
    thresholds, search = find_thresholds(rows, count)
    return plain._replace(nth_logit=thresholds.nth_logit, last_id=thresholds.last_id, maxima=search.maxima)

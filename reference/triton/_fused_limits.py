"""Top-k and top-p of the fused kernels: thresholds of the rows of all sampled requests."""

from __future__ import annotations

from typing import Any

from ._fused_rows import Chunks, FusedTarget, RequestTensors
from ._logit_keys import KeyRows
from ._thresholds import Sums, find_thresholds


def target_rows(
    logits: Any, vocabulary: int, requests: RequestTensors, chunks: Chunks, top_k: Any, top_p: Any
) -> FusedTarget:
    """Return target rows with the thresholds of their requests' limits; top-p is at the request's temperature.

    Args:
        logits: [L, at least vocabulary], before temperature.
        vocabulary: tokens of a row that count.
        requests: the batch.
        chunks: memory for the sums of rows with few tokens to keep.
        top_k: [R] tokens to keep by state, or None.
        top_p: [R] probability to keep by state, or None.
    """
    plain = FusedTarget(logits, *logits.stride())
    if top_k is None and top_p is None:
        return plain
    k, p = (None if values is None else values.contiguous() for values in (top_k, top_p))
    owners = (requests.cu_num_logits, requests.idx_mapping, requests.temperature, requests.columns)
    row_stride, id_stride = logits.stride()
    rows = KeyRows(logits, row_stride, id_stride, k, p, vocabulary, chunks.splits, *owners)
    sums = Sums(chunks.top, chunks.total, chunks.tiles)
    thresholds, _search = find_thresholds(rows, requests.count * requests.columns, sums)
    return plain._replace(**thresholds._asdict())

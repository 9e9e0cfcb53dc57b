"""apply_top_k_top_p: keep the first k tokens of a row, then the first tokens with probability p.

The result for a row is the lowest logit that stays, and the last id that stays among equal ones (``_thresholds``); one
more pass masks the others.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ._logit_keys import KeyRows
from ._threshold_gather import make_gathered
from ._threshold_search import CHUNK, chunk_ids, load_groups, survey
from ._thresholds import find_thresholds, make_thresholds


@triton.jit
def _mask_kernel(output, output_stride_0, output_stride_1, thresholds, maxima, rows):
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    ids = chunk_ids(chunk)
    mask = ids < rows.vocabulary
    nth = tl.load(thresholds.nth_logit + row)
    # Skip groups that no token survives. Rows without limits have no group maxima, but nothing is less than -inf.
    is_out = load_groups(maxima, row * rows.chunks + chunk) < nth
    row_logits = rows.logits + row * rows.row_stride + ids.to(tl.int64) * rows.id_stride
    # Exact both ways, since no logit is wider than float32.
    x = tl.load(row_logits, mask=mask & ~is_out, other=float("-inf")).to(tl.float32)
    # The comparison is false for NaN.
    stays = (x > nth) | ((x == nth) & (ids <= tl.load(thresholds.last_id + row)))
    out = output + row * output_stride_0 + ids.to(tl.int64) * output_stride_1
    tl.store(out, tl.where(stays, x, float("-inf")).to(output.dtype.element_ty), mask=mask)


def apply_top_k_top_p(*, output: Any, logits: Any, k: Any, p: Any) -> None:
    count, vocabulary = logits.shape
    if count == 0:
        return
    k = None if k is None else k.contiguous()
    p = None if p is None else p.contiguous()
    chunks = triton.cdiv(vocabulary, CHUNK.value)
    row_stride, id_stride = logits.stride()
    rows = KeyRows(logits, row_stride, id_stride, k, p, vocabulary, chunks)
    search = survey(rows, count)
    found, gathered = make_thresholds(count, logits.device), make_gathered(count, chunks, logits.device)
    thresholds = find_thresholds(search, found, gathered, rows, count)
    _mask_kernel[(count, chunks)](output, *output.stride(), thresholds, search.maxima, rows, num_warps=4)

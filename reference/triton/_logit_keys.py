"""Rows of logits for top-k and top-p: limits, loads, sort keys and weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from ._logits import exp, load_logits, nan_as_lowest


class KeyRows(NamedTuple):
    """Logits [rows, vocabulary] with k and p per row, each a tensor or None.

    With columns the rows are those of a batch of requests, numbered request * columns + step; k and p are per state.
    These fields are not a tuple of their own: Triton 3.6 loses the constants of nested tuples after a return.
    """

    logits: Any
    row_stride: Any
    id_stride: Any
    k: Any
    p: Any
    vocabulary: Any
    chunks: Any
    """Number of chunks per row, one program each."""
    cu_num_logits: Any = None
    idx_mapping: Any = None
    temperature: Any = None
    columns: Any = None
    rejected: Any = None
    """First step of each request that is certainly rejected."""
    decision: Any = None
    """Decision of the scan on the draft of each row."""
    settled: Any = None
    """1 for each request that needs no threshold any more; None if all that have limits need one."""


ACCEPTED: tl.constexpr = tl.constexpr(0)
REJECTED: tl.constexpr = tl.constexpr(1)
OPEN: tl.constexpr = tl.constexpr(2)
"""The exact limits of the row decide on its draft."""


@triton.jit
def needs_threshold(rows, row):
    """Return True for the row of a token, or of an open draft, of a request that is not settled.

    Without columns return True for every row.
    """
    is_needed = tl.full((), True, tl.int1)
    if rows.columns is not None:
        request = row // rows.columns
        step = row % rows.columns
        first = tl.load(rows.cu_num_logits + request).to(tl.int64)
        drafts = tl.load(rows.cu_num_logits + request + 1).to(tl.int64) - first - 1
        last = tl.minimum(drafts, tl.load(rows.rejected + request))
        is_open = (step < last) & (tl.load(rows.decision + row, mask=step < last, other=0) == OPEN)
        is_needed = (tl.load(rows.idx_mapping + request) >= 0) & (is_open | (step == last))
        if rows.settled is not None:
            is_needed = is_needed & (tl.load(rows.settled + request) == 0)
    return is_needed


@triton.jit
def owner_of(rows, row):
    """Return the target row and the state of a row; state -1 for a row that no sampled request has."""
    request = row // rows.columns
    step = row % rows.columns
    first = tl.load(rows.cu_num_logits + request).to(tl.int64)
    end = tl.load(rows.cu_num_logits + request + 1).to(tl.int64)
    state = tl.load(rows.idx_mapping + request).to(tl.int64)
    return first + step, tl.where(first + step < end, state, -1)


@triton.jit
def target_of(rows, row):
    """Return the row of logits of a row."""
    at = row
    if rows.columns is not None:
        at, _state = owner_of(rows, row)
    return at


@triton.jit
def limits(rows, row):
    """Return k and p of a row; the vocabulary size and 1 stand for no limit.

    With columns a greedy request has none: its argmax stays.
    """
    k = rows.vocabulary + tl.zeros((), tl.int32)
    p = tl.full((), 1.0, tl.float32)
    at = row
    is_sampled = tl.full((), True, tl.int1)
    if rows.columns is not None:
        _row, at = owner_of(rows, row)
        is_sampled = at >= 0
        is_sampled = tl.load(rows.temperature + at, mask=is_sampled, other=0.0) != 0.0
    if rows.k is not None:
        given_k = tl.load(rows.k + at, mask=is_sampled, other=0).to(tl.int64)
        k = tl.where((given_k < 1) | (given_k > rows.vocabulary), rows.vocabulary, given_k).to(tl.int32)
    if rows.p is not None:
        given_p = tl.load(rows.p + at, mask=is_sampled, other=1.0)
        # A p of NaN counts as zero.
        p = tl.where(given_p > 0.0, given_p, 0.0)
    return k, p


@triton.jit
def scale_of_row(rows, row):
    """Return 1 / temperature of a row with limits."""
    scale = tl.full((), 1.0, tl.float32)
    if rows.columns is not None:
        _row, state = owner_of(rows, row)
        scale = 1.0 / tl.load(rows.temperature + state)
    return scale


@triton.jit
def load_ordered(rows, row, ids, mask):
    """Load logits as float32 for comparison: NaN and masked lanes as minus infinity, minus zero as zero."""
    at = target_of(rows, row)
    # Adding zero turns minus zero into zero and changes no other number.
    return load_logits(rows.logits + at * rows.row_stride, rows.id_stride, ids, mask) + 0.0


@triton.jit
def key_of(x):
    """Return an unsigned key with the order of the floats."""
    bits = x.to(tl.uint32, bitcast=True)
    return bits ^ tl.where(bits >= 0x80000000, 0xFFFFFFFF, 0x80000000).to(tl.uint32)


@triton.jit
def value_of(key):
    """Return the float of a key; minus infinity for a key below every float's."""
    bits = key ^ tl.where(key >= 0x80000000, 0x80000000, 0xFFFFFFFF).to(tl.uint32)
    return nan_as_lowest(bits.to(tl.float32, bitcast=True))


@triton.jit
def weight(x, top, scale):
    """Return exp((x - top) * scale), also if both are infinite."""
    return tl.where(x == top, 1.0, exp((x - top) * scale))


@triton.jit
def weights(x, top, scale):
    """Return the weights of logits whose maximum is `top`; minus infinity weighs nothing."""
    if (top > float("-inf")) & (top < float("inf")) & (scale < float("inf")):
        found = exp((x - top) * scale)
    else:
        found = tl.where(x > float("-inf"), weight(x, top, scale), 0.0)
    return found

"""apply_top_k_top_p: keep the first k tokens of a row, then the first tokens with probability p.

A logit's bits, reordered, are an unsigned key with the same order. The result for a row is the lowest key that stays,
and the last id that stays among equal keys:

1. interval: find an interval of logits that contains the threshold and few tokens (``_threshold_search``).
2. gather: store the places of its tokens, chunk by chunk.
3. select: find the threshold among them by radix search, two bits per pass.
4. mask.

Nothing is sorted, and a row's result does not depend on the batch. Ties may keep an interval large, which makes it
slower to search but changes no result.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from verispec.reference.triton._threshold_search import (
    ABOVE,
    CHUNK,
    FIELDS,
    HIGH,
    LOW,
    TOP,
    TOTAL,
    chunk_ids,
    find_intervals,
    load_groups,
)

from ._logit_keys import KeyRows, key_of, limits, load_ordered, value_of, weight

ALL: tl.constexpr = tl.constexpr(2**30)
WINDOW = 4096
"""Gathered tokens that a program holds at once, over all chunks."""


@triton.jit
def bounds(search, row, has_both):
    """Return the interval of a row. With both limits top-p applies to the first k tokens, all above the lower bound."""
    fields = search.state + row * FIELDS
    top = tl.load(fields + TOP)
    return tl.load(fields + LOW), tl.where(has_both, top, tl.minimum(tl.load(fields + HIGH), top))


@triton.jit
def _gather_kernel(places, lengths, search, rows):
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    k, p = limits(rows, row)
    if (k >= rows.vocabulary) & (p >= 1.0):
        return
    low, high = bounds(search, row, (k < rows.vocabulary) & (p < 1.0))
    at = row * rows.chunks + chunk
    ids = chunk_ids(chunk)
    mask = (ids < rows.vocabulary) & (load_groups(search.maxima, at) > low)
    x = load_ordered(rows, row, ids, mask)
    is_in = ((x > low) & (x <= high)).to(tl.int32)
    in_group = tl.sum(is_in, axis=1)
    before = tl.cumsum(in_group, axis=0) - in_group
    place = before[:, None] + tl.cumsum(is_in, axis=1) - 1
    tl.store(places + at * CHUNK + place, ids - chunk * CHUNK, mask=is_in > 0)
    tl.store(lengths + at, tl.sum(in_group, axis=0))


@triton.jit
def load_gathered(gathered, start, COLUMNS: tl.constexpr, PADDED: tl.constexpr):
    """Load `COLUMNS` gathered logits of every chunk and their ids; minus infinity past a chunk's end."""
    rows, row, places, length, _longest, _origin = gathered
    chunk = tl.arange(0, PADDED)[:, None]
    column = start + tl.arange(0, COLUMNS)[None, :]
    mask = column < length[:, None]
    at = (row * rows.chunks + chunk) * CHUNK + column
    ids = chunk * CHUNK + tl.load(places + at, mask=mask, other=0).to(tl.int32)
    return load_ordered(rows, row, ids, mask), ids


@triton.jit
def rank_of(x, origin):
    """Return the rank of a token in the interval whose lower bound has the key `origin`; 0 for a masked lane."""
    return tl.where(x > float("-inf"), key_of(x) - origin, 0)


@triton.jit
def measured(x, origin, top, BY_COUNT: tl.constexpr):
    """Return ranks and weights of tokens, in one column."""
    x = tl.reshape(x, (x.shape[0] * x.shape[1], 1))
    return rank_of(x, origin), tl.where(x > float("-inf"), 1.0 if BY_COUNT else weight(x, top), 0.0)


@triton.jit
def measure_from(first, gathered, trial, top, BY_COUNT: tl.constexpr, COLUMNS: tl.constexpr, PADDED: tl.constexpr):
    """Return the weight of the gathered tokens with at least each rank of `trial`.

    `first` is ranks and weights of the first columns, which stay in registers. Usually there are no others.
    """
    rank, measure = first
    total = tl.sum(tl.where(rank >= trial[None, :], measure, 0.0), axis=0)
    for start in range(COLUMNS, gathered[4], COLUMNS):
        x, _ids = load_gathered(gathered, start, COLUMNS, PADDED)
        rank, measure = measured(x, gathered[5], top, BY_COUNT)
        total += tl.sum(tl.where(rank >= trial[None, :], measure, 0.0), axis=0)
    return total


@triton.jit
def largest_rank(
    first, gathered, most, floor, need, top, BY_COUNT: tl.constexpr, COLUMNS: tl.constexpr, PADDED: tl.constexpr
):
    """Return the largest rank, at least `floor`, whose tokens and later ones weigh `need`, and the weight above it.

    Return rank 0 if all tokens weigh less. No token has a rank above `most`.
    """
    digit = tl.arange(0, 4).to(tl.uint32)
    shift = tl.full((), 30, tl.int32)
    while (shift > 0) & ((most >> shift.to(tl.uint32)) == 0):
        shift -= 2
    found = tl.zeros((), tl.uint32)
    above = tl.zeros((), tl.float32)
    while shift >= 0:
        trial = found | (digit << shift.to(tl.uint32))
        total = measure_from(first, gathered, trial, top, BY_COUNT, COLUMNS, PADDED)
        holds = (trial <= floor) | (total >= need)
        found = tl.max(tl.where(holds, trial, found), axis=0)
        # The smallest of the ranks that weigh too little becomes the next one above.
        above = tl.maximum(above, tl.max(tl.where(holds, 0.0, total), axis=0))
        shift -= 2
    return found, above


@triton.jit
def last_tie(x, gathered, rank, kept, COLUMNS: tl.constexpr, PADDED: tl.constexpr):
    """Return the id of the last of the `kept` first tokens of a rank, or a larger id if all are kept.

    `x` is the first columns. Ids increase along the columns.
    """
    origin = gathered[5]
    ties = tl.sum((rank_of(x, origin) == rank).to(tl.int32), axis=1)
    for start in range(COLUMNS, gathered[4], COLUMNS):
        x, _ids = load_gathered(gathered, start, COLUMNS, PADDED)
        ties += tl.sum((rank_of(x, origin) == rank).to(tl.int32), axis=1)
    last_id = tl.full((), ALL, tl.int32)
    if tl.sum(ties, axis=0) > kept:
        before = tl.cumsum(ties, axis=0) - ties
        last_id = tl.full((), -1, tl.int32)
        for start in range(0, gathered[4], COLUMNS):
            x, ids = load_gathered(gathered, start, COLUMNS, PADDED)
            is_tie = (rank_of(x, origin) == rank).to(tl.int32)
            stays = (is_tie > 0) & (before[:, None] + tl.cumsum(is_tie, axis=1) <= kept)
            last_id = tl.maximum(last_id, tl.max(tl.where(stays, ids, -1)))
            before += tl.sum(is_tie, axis=1)
    return last_id


@triton.jit
def _select_kernel(nth_logits, last_ids, places, lengths, search, rows, COLUMNS: tl.constexpr, PADDED: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    k, p = limits(rows, row)
    has_k = k < rows.vocabulary
    if (not has_k) & (p >= 1.0):
        tl.store(nth_logits + row, float("-inf"))
        tl.store(last_ids + row, -1)
        return
    has_both = has_k & (p < 1.0)
    fields = search.state + row * FIELDS
    top = tl.load(fields + TOP)
    low, high = bounds(search, row, has_both)
    origin = key_of(low)
    most = key_of(high) - origin
    lane = tl.arange(0, PADDED)
    length = tl.load(lengths + row * rows.chunks + lane, mask=lane < rows.chunks, other=0)
    gathered = (rows, row, places, length, tl.max(length, axis=0), origin)
    x, _ids = load_gathered(gathered, 0, COLUMNS, PADDED)

    # Rank 0 is below every token's rank. It keeps all tokens, even if rounding leaves their weight below the target.
    nth = tl.zeros((), tl.uint32)
    kept = tl.full((), ALL, tl.int32)
    above = tl.where(has_both, 0.0, tl.load(fields + ABOVE))
    if rows.k is not None:  # noqa: SIM102 -- decided when the kernel is compiled
        if has_k:
            first = measured(x, origin, top, True)
            nth, more = largest_rank(first, gathered, most, nth, k - above, top, True, COLUMNS, PADDED)
            if nth > 0:
                kept = k - (above + more).to(tl.int32)
    if rows.p is not None:  # noqa: SIM102
        if p < 1.0:
            kth = nth
            first = measured(x, origin, top, False)
            target = p * tl.load(fields + TOTAL) - above
            if rows.k is not None:  # noqa: SIM102
                if has_k:
                    after = kth + tl.full((1,), 1, tl.uint32)
                    mass = tl.sum(measure_from(first, gathered, after, top, False, COLUMNS, PADDED), axis=0)
                    if kth > 0:
                        mass += kept.to(tl.float32) * weight(value_of(origin + kth), top)
                    target = p * mass
            # A minimum above zero keeps the first token.
            target = tl.maximum(target, 1e-30)
            nth, more = largest_rank(first, gathered, most, kth, target, top, False, COLUMNS, PADDED)
            if nth > 0:
                ties = (target - more) / tl.maximum(weight(value_of(origin + nth), top), 1e-30)
                ties = tl.minimum(tl.maximum(tl.ceil(ties), 1.0), 1e9).to(tl.int32)
                kept = tl.where(nth == kth, tl.minimum(ties, kept), ties)
    tl.store(nth_logits + row, value_of(origin + nth))
    last_id = last_tie(x, gathered, nth, kept, COLUMNS, PADDED)
    # Rank 0 means no token: drop logits at or below the lower bound.
    tl.store(last_ids + row, tl.where(nth > 0, last_id, -1))


@triton.jit
def _mask_kernel(output, output_stride_0, output_stride_1, nth_logits, last_ids, maxima, rows):
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    ids = chunk_ids(chunk)
    mask = ids < rows.vocabulary
    nth = tl.load(nth_logits + row)
    # Skip groups that no token survives. Rows without limits have no group maxima, but nothing is less than -inf.
    is_out = load_groups(maxima, row * rows.chunks + chunk) < nth
    row_logits = rows.logits + row * rows.row_stride + ids.to(tl.int64) * rows.id_stride
    # Exact both ways, since no logit is wider than float32.
    x = tl.load(row_logits, mask=mask & ~is_out, other=float("-inf")).to(tl.float32)
    # The comparison is false for NaN.
    stays = (x > nth) | ((x == nth) & (ids <= tl.load(last_ids + row)))
    out = output + row * output_stride_0 + ids.to(tl.int64) * output_stride_1
    tl.store(out, tl.where(stays, x, float("-inf")).to(output.dtype.element_ty), mask=mask)


def apply_top_k_top_p(*, output: Any, logits: Any, k: Any, p: Any) -> None:
    count, vocabulary = logits.shape
    if count == 0:
        return
    k = None if k is None else k.contiguous()
    p = None if p is None else p.contiguous()
    chunks = triton.cdiv(vocabulary, CHUNK.value)
    padded = triton.next_power_of_2(chunks)
    row_stride, id_stride = logits.stride()
    rows = KeyRows(logits, row_stride, id_stride, k, p, vocabulary, chunks)
    search = find_intervals(rows)
    places = torch.empty((count, chunks, CHUNK.value), dtype=torch.int16, device=logits.device)
    lengths = torch.empty((count, chunks), dtype=torch.int32, device=logits.device)
    nth_logits = torch.empty(count, dtype=torch.float32, device=logits.device)
    last_ids = torch.empty(count, dtype=torch.int32, device=logits.device)
    _gather_kernel[(count, chunks)](places, lengths, search, rows, num_warps=8)
    columns = min(max(WINDOW // padded, 1), CHUNK.value)
    _select_kernel[(count,)](
        nth_logits, last_ids, places, lengths, search, rows, COLUMNS=columns, PADDED=padded, num_warps=8
    )
    _mask_kernel[(count, chunks)](output, *output.stride(), nth_logits, last_ids, search.maxima, rows, num_warps=4)

"""apply_top_k_top_p: keep the first k tokens of a row, then the first ones that hold the probability p.

A logit's bits, reordered, are an unsigned number with the same order, its key. The answer for a row is the
lowest key that stays and the last id that stays with it:

1. interval: an interval of logits that holds the answer and few tokens (``_interval``).
2. gather: the places of its tokens, chunk by chunk.
3. select: the answer among them, bit by bit: 32 counts for top-k, 32 sums of exponentials for top-p.
4. mask.

Nothing is sorted, and a row has one answer, whatever the batch. An interval that ties keep large is slower
to search, and nothing else.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ._interval import ABOVE, CHUNK, FIELDS, HIGH, LOW, TOP, TOTAL, chunk_ids, find_intervals, load_groups
from ._logit_keys import Rows, key_of, load_ordered, rules, value_of, weight

ALL: tl.constexpr = tl.constexpr(2**30)
WINDOW = 8192
"""Gathered tokens that a program holds at once, those of all chunks together."""


@triton.jit
def _gather_kernel(places, lengths, search, rows):
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    k, p = rules(rows, row)
    if (k >= rows.vocabulary) & (p >= 1.0):
        return
    low = tl.load(search.state + row * FIELDS + LOW)
    # With both rules top-p is over the first k, which all lie above the interval's lower bound.
    has_both = (k < rows.vocabulary) & (p < 1.0)
    high = tl.where(has_both, float("inf"), tl.load(search.state + row * FIELDS + HIGH))
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
    """`COLUMNS` gathered logits of every chunk and their ids; past a chunk's end minus infinity, which is never one."""
    rows, row, places, length, _longest = gathered
    chunk = tl.arange(0, PADDED)[:, None]
    column = start + tl.arange(0, COLUMNS)[None, :]
    mask = column < length[:, None]
    at = (row * rows.chunks + chunk) * CHUNK + column
    ids = chunk * CHUNK + tl.load(places + at, mask=mask, other=0).to(tl.int32)
    return load_ordered(rows, row, ids, mask), ids


@triton.jit
def measure_of(x, key, top, BY_COUNT: tl.constexpr):
    """How many tokens have the key or one above it, or their mass."""
    is_in = (key_of(x) >= key) & (x > float("-inf"))
    return tl.sum(tl.where(is_in, 1.0 if BY_COUNT else weight(x, top), 0.0))


@triton.jit
def measure_from(x, gathered, key, top, BY_COUNT: tl.constexpr, COLUMNS: tl.constexpr, PADDED: tl.constexpr):
    """What the gathered tokens from a key on measure.

    `x` are the first columns, which nearly always are all: they stay in registers.
    """
    measure = measure_of(x, key, top, BY_COUNT)
    for start in range(COLUMNS, gathered[4], COLUMNS):
        more, _ids = load_gathered(gathered, start, COLUMNS, PADDED)
        measure += measure_of(more, key, top, BY_COUNT)
    return measure


@triton.jit
def largest_key(x, gathered, floor, need, top, BY_COUNT: tl.constexpr, COLUMNS: tl.constexpr, PADDED: tl.constexpr):
    """The largest key from which on the gathered tokens measure `need`, or `floor`; 0 if all measure less."""
    found = floor * 0
    bit = found + 0x80000000
    for _ in range(32):
        measure = measure_from(x, gathered, found | bit, top, BY_COUNT, COLUMNS, PADDED)
        found = tl.where(((found | bit) <= floor) | (measure >= need), found | bit, found)
        bit = bit >> 1
    return found


@triton.jit
def last_tie(gathered, key, kept, COLUMNS: tl.constexpr, PADDED: tl.constexpr):
    """The id of the last of the `kept` first tokens that have a key: they stand chunk by chunk, in order."""
    longest = gathered[4]
    ties = tl.zeros((PADDED,), tl.int32)
    for start in range(0, longest, COLUMNS):
        x, _ids = load_gathered(gathered, start, COLUMNS, PADDED)
        ties += tl.sum(((key_of(x) == key) & (x > float("-inf"))).to(tl.int32), axis=1)
    before = tl.cumsum(ties, axis=0) - ties
    last_id = tl.full((), -1, tl.int32)
    for start in range(0, longest, COLUMNS):
        x, ids = load_gathered(gathered, start, COLUMNS, PADDED)
        is_tie = ((key_of(x) == key) & (x > float("-inf"))).to(tl.int32)
        stays = (is_tie > 0) & (before[:, None] + tl.cumsum(is_tie, axis=1) <= kept)
        last_id = tl.maximum(last_id, tl.max(tl.where(stays, ids, -1)))
        before += tl.sum(is_tie, axis=1)
    return last_id


@triton.jit
def _select_kernel(nth_logits, last_ids, places, lengths, search, rows, COLUMNS: tl.constexpr, PADDED: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    k, p = rules(rows, row)
    has_k = k < rows.vocabulary
    if (not has_k) & (p >= 1.0):
        tl.store(nth_logits + row, float("-inf"))
        tl.store(last_ids + row, -1)
        return
    fields = search.state + row * FIELDS
    top = tl.load(fields + TOP)
    lane = tl.arange(0, PADDED)
    length = tl.load(lengths + row * rows.chunks + lane, mask=lane < rows.chunks, other=0)
    gathered = (rows, row, places, length, tl.max(length, axis=0))
    x, _ids = load_gathered(gathered, 0, COLUMNS, PADDED)

    # Key 0 is below every token's: it keeps them all.
    nth = tl.zeros((), tl.uint32)
    kept = tl.full((), ALL, tl.int32)
    above = tl.where(has_k & (p < 1.0), 0.0, tl.load(fields + ABOVE))
    if rows.k is not None:  # noqa: SIM102 -- decided when the kernel is compiled
        if has_k:
            nth = largest_key(x, gathered, nth, k - above, top, True, COLUMNS, PADDED)
            if nth > 0:
                more = measure_from(x, gathered, nth + 1, top, True, COLUMNS, PADDED)
                kept = k - (above + more).to(tl.int32)
    if rows.p is not None:  # noqa: SIM102
        if p < 1.0:
            kth = nth
            mass = measure_from(x, gathered, kth + 1, top, False, COLUMNS, PADDED)
            if has_k:
                if kth > 0:
                    mass += kept.to(tl.float32) * weight(value_of(kth), top)
                target = p * mass
            else:
                # Summed in another order the tokens may fall short of what the interval was found by.
                target = tl.minimum(p * tl.load(fields + TOTAL) - above, mass)
            # The smallest number stands for zero, so that the first token stays.
            target = tl.maximum(target, 1e-30)
            nth = largest_key(x, gathered, kth, target, top, False, COLUMNS, PADDED)
            if nth > 0:
                more = measure_from(x, gathered, nth + 1, top, False, COLUMNS, PADDED)
                ties = (target - more) / tl.maximum(weight(value_of(nth), top), 1e-30)
                ties = tl.minimum(tl.maximum(tl.ceil(ties), 1.0), 1e9).to(tl.int32)
                kept = tl.where(nth == kth, tl.minimum(ties, kept), ties)
    tl.store(nth_logits + row, value_of(nth))
    tl.store(last_ids + row, last_tie(gathered, nth, kept, COLUMNS, PADDED))


@triton.jit
def _mask_kernel(output, output_stride_0, output_stride_1, nth_logits, last_ids, maxima, rows):
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    ids = chunk_ids(chunk)
    mask = ids < rows.vocabulary
    nth = tl.load(nth_logits + row)
    # A group of which nothing stays need not be read. Rows without a rule have no maxima: nothing is less than -inf.
    is_out = load_groups(maxima, row * rows.chunks + chunk) < nth
    row_logits = rows.logits + row * rows.row_stride + ids.to(tl.int64) * rows.id_stride
    raw = tl.load(row_logits, mask=mask & ~is_out, other=float("-inf"))
    x = raw.to(tl.float32)
    # False for NaN.
    stays = (x > nth) | ((x == nth) & (ids <= tl.load(last_ids + row)))
    out = output + row * output_stride_0 + ids.to(tl.int64) * output_stride_1
    tl.store(out, tl.where(stays, raw, float("-inf")).to(output.dtype.element_ty), mask=mask)


def apply_top_k_top_p(*, output: Any, logits: Any, k: Any, p: Any) -> None:
    count, vocabulary = logits.shape
    if count == 0:
        return
    k = None if k is None else k.contiguous()
    p = None if p is None else p.contiguous()
    chunks = triton.cdiv(vocabulary, CHUNK.value)
    padded = triton.next_power_of_2(chunks)
    rows = Rows(logits, *logits.stride(), k, p, vocabulary, chunks)
    search = find_intervals(rows)
    places = torch.empty((count, chunks, CHUNK.value), dtype=torch.int16, device=logits.device)
    lengths = torch.empty((count, chunks), dtype=torch.int32, device=logits.device)
    nth_logits = torch.empty(count, dtype=torch.float32, device=logits.device)
    last_ids = torch.empty(count, dtype=torch.int32, device=logits.device)
    _gather_kernel[(count, chunks)](places, lengths, search, rows, num_warps=8)
    columns = min(max(WINDOW // padded, 1), CHUNK.value)
    _select_kernel[(count,)](
        nth_logits, last_ids, places, lengths, search, rows, COLUMNS=columns, PADDED=padded, num_warps=16
    )
    _mask_kernel[(count, chunks)](output, *output.stride(), nth_logits, last_ids, search.maxima, rows, num_warps=4)

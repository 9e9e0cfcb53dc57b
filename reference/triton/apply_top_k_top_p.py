"""apply_top_k_top_p: keep the first k tokens of a row, then the first ones that hold the probability p.

A logit's bits, reordered, are an unsigned number with the same order, its key. The answer for a row is the
lowest key that stays and the last id that stays with it. Rows are cut into chunks, a program each, so that
few rows still fill the device:

1. survey: maximum and minimum of each chunk.
2. narrow, three times at most: count and weigh the tokens above seven pivots, to find an interval (low, high] of logits
   that holds the answer and few tokens.
3. gather: the tokens of the interval, chunk by chunk.
4. select: the answer among them, bit by bit: 32 counts for top-k, 32 sums of exponentials for top-p.
5. mask.

Each step works out the interval anew from what the step before left, so nothing is combined in between and
nothing is sorted. A row has one answer, whatever the batch. An interval that ties keep large is slower to
search, and nothing else.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ._request_state import nan_as_lowest

CHUNK: tl.constexpr = tl.constexpr(4096)
ROUNDS = 3
PIVOTS: tl.constexpr = tl.constexpr(8)
"""Pivot 0 is minus infinity; the others cut what is left of the range into as many parts."""
FEW: tl.constexpr = tl.constexpr(2048)
"""Tokens that are not worth another round."""
REACH: tl.constexpr = tl.constexpr(32.0)
"""Pivots are looked for this far below the maximum: what lies lower holds no mass to speak of."""
ALL: tl.constexpr = tl.constexpr(2**30)


@triton.jit
def load_row(row, stride, ids, mask):
    """Logits as float32; NaN and masked lanes as minus infinity, minus zero as zero."""
    x = nan_as_lowest(tl.load(row + ids.to(tl.int64) * stride, mask=mask, other=float("-inf")).to(tl.float32))
    return tl.where(x == 0.0, 0.0, x)


@triton.jit
def key_of(x):
    """The unsigned number that stands where the float stands."""
    bits = x.to(tl.uint32, bitcast=True)
    return bits ^ tl.where(bits >= 0x80000000, 0xFFFFFFFF, 0x80000000).to(tl.uint32)


@triton.jit
def value_of(key):
    """The float of a key."""
    bits = key ^ tl.where(key >= 0x80000000, 0x80000000, 0xFFFFFFFF).to(tl.uint32)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def weight(x, top):
    """exp(x - top), also where both are infinite."""
    return tl.where(x == top, 1.0, tl.exp(x - top))


@triton.jit
def rules(ks, ps, row, vocabulary, HAS_K: tl.constexpr, HAS_P: tl.constexpr):
    """k and p of a row; `vocabulary` and 1 where it has no such rule."""
    k = vocabulary + tl.zeros((), tl.int32)
    p = tl.full((), 1.0, tl.float32)
    if HAS_K:
        given = tl.load(ks + row).to(tl.int64)
        k = tl.where((given < 1) | (given > vocabulary), vocabulary, given).to(tl.int32)
    if HAS_P:
        p = tl.maximum(tl.load(ps + row), 0.0)
    return k, p


@triton.jit
def extremes(tops, bottoms, row, chunks, PADDED: tl.constexpr):
    """Largest and smallest finite logit of a row."""
    lane = tl.arange(0, PADDED)
    top = tl.load(tops + row * chunks + lane, mask=lane < chunks, other=float("-inf"))
    bottom = tl.load(bottoms + row * chunks + lane, mask=lane < chunks, other=float("inf"))
    return tl.max(top, axis=0), tl.min(bottom, axis=0)


@triton.jit
def interval(
    tops,
    bottoms,
    pivots,
    counts,
    masses,
    row,
    rows,
    chunks,
    vocabulary,
    k,
    p,
    ROUNDS: tl.constexpr,
    PADDED: tl.constexpr,
):
    """What `ROUNDS` rounds have found: the row's maximum and weight; low and high; how many tokens lie above
    each and the weight above high; and the range that is left for pivots.

    Only what rounds have stored is used, never computed again, so that every program finds the same.
    """
    top, bottom = extremes(tops, bottoms, row, chunks, PADDED)
    left = tl.maximum(bottom, top - REACH)
    right = top
    low = tl.full((), float("-inf"), tl.float32)
    high = tl.full((), float("inf"), tl.float32)
    in_low = vocabulary + tl.zeros((), tl.int32)
    in_high = tl.zeros((), tl.int32)
    high_mass = tl.zeros((), tl.float32)
    total = tl.zeros((), tl.float32)
    chunk = tl.arange(0, PADDED)[:, None]
    pivot = tl.arange(0, PIVOTS)
    for r in tl.static_range(ROUNDS):
        if (in_low - in_high > FEW) & (left < right):
            at = ((r * rows + row) * chunks + chunk) * PIVOTS + pivot[None, :]
            count = tl.sum(tl.load(counts + at, mask=chunk < chunks, other=0), axis=0)
            mass = tl.sum(tl.load(masses + at, mask=chunk < chunks, other=0.0), axis=0)
            logit = tl.load(pivots + (r * rows + row) * PIVOTS + pivot)
            total = tl.sum(tl.where(pivot == 0, mass, 0.0), axis=0)
            # With both rules top-k decides here: top-p is over the first k.
            holds = tl.where(k < vocabulary, count >= k, mass >= p * total) & (pivot > 0)
            best = tl.max(tl.where(holds, pivot, 0), axis=0)
            if best > 0:
                low = tl.max(tl.where(pivot == best, logit, float("-inf")), axis=0)
                in_low = tl.sum(tl.where(pivot == best, count, 0), axis=0)
                left = low
            if best < PIVOTS - 1:
                right = tl.max(tl.where(pivot == best + 1, logit, float("-inf")), axis=0)
                if (k >= vocabulary) | (p >= 1.0):
                    high = right
                    in_high = tl.sum(tl.where(pivot == best + 1, count, 0), axis=0)
                    high_mass = tl.sum(tl.where(pivot == best + 1, mass, 0.0), axis=0)
    return top, total, low, high, in_low, in_high, high_mass, left, right


@triton.jit
def _survey_kernel(
    tops,
    bottoms,
    logits,
    logits_stride_0,
    logits_stride_1,
    ks,
    ps,
    chunks,
    vocabulary,
    HAS_K: tl.constexpr,
    HAS_P: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    k, p = rules(ks, ps, row, vocabulary, HAS_K, HAS_P)
    if (k >= vocabulary) & (p >= 1.0):
        return
    for chunk in range(tl.program_id(1), chunks, tl.num_programs(1)):
        ids = chunk * CHUNK + tl.arange(0, CHUNK)
        x = load_row(logits + row * logits_stride_0, logits_stride_1, ids, ids < vocabulary)
        out = row * chunks + chunk
        tl.store(tops + out, tl.max(x, axis=0))
        tl.store(bottoms + out, tl.min(tl.where(x > float("-inf"), x, float("inf")), axis=0))


@triton.jit
def _narrow_kernel(
    tops,
    bottoms,
    pivots,
    counts,
    masses,
    logits,
    logits_stride_0,
    logits_stride_1,
    ks,
    ps,
    chunks,
    vocabulary,
    ROUND: tl.constexpr,
    HAS_K: tl.constexpr,
    HAS_P: tl.constexpr,
    PADDED: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    rows = tl.num_programs(0)
    k, p = rules(ks, ps, row, vocabulary, HAS_K, HAS_P)
    if (k >= vocabulary) & (p >= 1.0):
        return
    top, _total, _low, _high, in_low, in_high, _high_mass, left, right = interval(
        tops, bottoms, pivots, counts, masses, row, rows, chunks, vocabulary, k, p, ROUND, PADDED
    )
    if (in_low - in_high <= FEW) | (left >= right):
        return
    width = tl.minimum(right, 3.0e38) * 0.125 - left * 0.125
    for chunk in range(tl.program_id(1), chunks, tl.num_programs(1)):
        ids = chunk * CHUNK + tl.arange(0, CHUNK)
        x = load_row(logits + row * logits_stride_0, logits_stride_1, ids, ids < vocabulary)
        w = weight(x, top)
        for i in tl.static_range(PIVOTS):
            pivot = left + width * i
            if i == 0:
                pivot = tl.full((), float("-inf"), tl.float32)
            if chunk == 0:
                tl.store(pivots + (ROUND * rows + row) * PIVOTS + i, pivot)
            is_above = x > pivot
            out = ((ROUND * rows + row) * chunks + chunk) * PIVOTS + i
            tl.store(counts + out, tl.sum(is_above.to(tl.int32), axis=0))
            if HAS_P:
                tl.store(masses + out, tl.sum(tl.where(is_above, w, 0.0), axis=0))


@triton.jit
def _gather_kernel(
    tokens,
    places,
    lengths,
    tops,
    bottoms,
    pivots,
    counts,
    masses,
    logits,
    logits_stride_0,
    logits_stride_1,
    ks,
    ps,
    chunks,
    vocabulary,
    ROUNDS: tl.constexpr,
    HAS_K: tl.constexpr,
    HAS_P: tl.constexpr,
    PADDED: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    rows = tl.num_programs(0)
    k, p = rules(ks, ps, row, vocabulary, HAS_K, HAS_P)
    if (k >= vocabulary) & (p >= 1.0):
        return
    _top, _total, low, high, _in_low, _in_high, _high_mass, _left, _right = interval(
        tops, bottoms, pivots, counts, masses, row, rows, chunks, vocabulary, k, p, ROUNDS, PADDED
    )
    lane = tl.arange(0, CHUNK)
    for chunk in range(tl.program_id(1), chunks, tl.num_programs(1)):
        ids = chunk * CHUNK + lane
        x = load_row(logits + row * logits_stride_0, logits_stride_1, ids, ids < vocabulary)
        is_in = (x > low) & (x <= high)
        place = tl.cumsum(is_in.to(tl.int32), axis=0)
        out = (row * chunks + chunk) * CHUNK + place - 1
        tl.store(tokens + out, x, mask=is_in)
        tl.store(places + out, lane, mask=is_in)
        tl.store(lengths + row * chunks + chunk, tl.max(place, axis=0))


@triton.jit
def load_gathered(tokens, length, start, COLUMNS: tl.constexpr, PADDED: tl.constexpr):
    """`COLUMNS` gathered tokens of every chunk, flat; minus infinity, which is never gathered, past their end."""
    chunk = tl.arange(0, PADDED)[:, None]
    column = start + tl.arange(0, COLUMNS)[None, :]
    x = tl.load(tokens + chunk * CHUNK + column, mask=column < length[:, None], other=float("-inf"))
    return tl.reshape(x, (PADDED * COLUMNS,))


@triton.jit
def from_key(x, tokens, length, longest, trial, top, COLUMNS: tl.constexpr, PADDED: tl.constexpr):
    """How many of the gathered tokens have a key of `trial` or above, and their weight.

    `x` are the first columns, which nearly always are all: they stay in registers.
    """
    is_in = (key_of(x) >= trial) & (x > float("-inf"))
    count = tl.sum(is_in.to(tl.int32), axis=0)
    mass = tl.sum(tl.where(is_in, weight(x, top), 0.0), axis=0)
    for start in range(COLUMNS, longest, COLUMNS):
        more = load_gathered(tokens, length, start, COLUMNS, PADDED)
        is_in = (key_of(more) >= trial) & (more > float("-inf"))
        count += tl.sum(is_in.to(tl.int32), axis=0)
        mass += tl.sum(tl.where(is_in, weight(more, top), 0.0), axis=0)
    return count, mass


@triton.jit
def _select_kernel(
    nth_keys,
    last_ids,
    tokens,
    places,
    lengths,
    tops,
    bottoms,
    pivots,
    counts,
    masses,
    ks,
    ps,
    chunks,
    vocabulary,
    ROUNDS: tl.constexpr,
    HAS_K: tl.constexpr,
    HAS_P: tl.constexpr,
    COLUMNS: tl.constexpr,
    PADDED: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    k, p = rules(ks, ps, row, vocabulary, HAS_K, HAS_P)
    if (k >= vocabulary) & (p >= 1.0):
        tl.store(nth_keys + row, tl.zeros((), tl.int64))
        tl.store(last_ids + row, vocabulary)
        return
    top, total, _low, _high, _in_low, in_high, high_mass, _left, _right = interval(
        tops, bottoms, pivots, counts, masses, row, tl.num_programs(0), chunks, vocabulary, k, p, ROUNDS, PADDED
    )
    lane = tl.arange(0, PADDED)
    length = tl.load(lengths + row * chunks + lane, mask=lane < chunks, other=0)
    longest = tl.max(length, axis=0)
    row_tokens = tokens + row * chunks * CHUNK

    x = load_gathered(row_tokens, length, 0, COLUMNS, PADDED)

    # Key 0 is below every token's: it keeps them all.
    kth = tl.zeros((), tl.uint32)
    kept = tl.full((), ALL, tl.int32)
    if HAS_K:  # noqa: SIM102 -- decided when the kernel is compiled
        if k < vocabulary:
            bit = kth + 0x80000000
            for _ in range(32):
                trial = kth | bit
                bit = bit >> 1
                count, _mass = from_key(x, row_tokens, length, longest, trial, top, COLUMNS, PADDED)
                kth = tl.where(in_high + count >= k, trial, kth)
            count, mass = from_key(x, row_tokens, length, longest, kth + 1, top, COLUMNS, PADDED)
            total = mass
            if kth > 0:
                kept = k - in_high - count
                total = mass + kept.to(tl.float32) * weight(value_of(kth), top)
    nth = kth
    if HAS_P:  # noqa: SIM102
        if p < 1.0:
            if (k >= vocabulary) & (total == 0.0):
                _count, total = from_key(x, row_tokens, length, longest, tl.zeros((), tl.uint32), top, COLUMNS, PADDED)
            # The smallest number stands for zero, so that the first token stays.
            target = tl.maximum(p * total, 1e-30)
            nth = tl.zeros((), tl.uint32)
            bit = nth + 0x80000000
            for _ in range(32):
                trial = nth | bit
                bit = bit >> 1
                _count, mass = from_key(x, row_tokens, length, longest, trial, top, COLUMNS, PADDED)
                nth = tl.where((trial <= kth) | (high_mass + mass >= target), trial, nth)
            _count, mass = from_key(x, row_tokens, length, longest, nth + 1, top, COLUMNS, PADDED)
            if nth > 0:
                ties = (target - high_mass - mass) / tl.maximum(weight(value_of(nth), top), 1e-30)
                ties = tl.minimum(tl.maximum(tl.ceil(ties), 1.0), 1e9).to(tl.int32)
                kept = tl.where(nth == kth, tl.minimum(ties, kept), ties)

    # The id of the last tie that stays: ties are numbered chunk by chunk, then within their chunk.
    ties = tl.zeros((PADDED,), tl.int32)
    for start in range(0, longest, COLUMNS):
        column = start + tl.arange(0, COLUMNS)[None, :]
        mask = column < length[:, None]
        gathered = tl.load(row_tokens + lane[:, None] * CHUNK + column, mask=mask, other=float("-inf"))
        ties += tl.sum((mask & (key_of(gathered) == nth)).to(tl.int32), axis=1)
    before = tl.cumsum(ties, axis=0) - ties
    last_id = tl.full((), -1, tl.int32)
    for start in range(0, longest, COLUMNS):
        column = start + tl.arange(0, COLUMNS)[None, :]
        mask = column < length[:, None]
        at = lane[:, None] * CHUNK + column
        gathered = tl.load(row_tokens + at, mask=mask, other=float("-inf"))
        is_tie = mask & (key_of(gathered) == nth)
        number = before[:, None] + tl.cumsum(is_tie.to(tl.int32), axis=1)
        ids = lane[:, None] * CHUNK + tl.load(places + row * chunks * CHUNK + at, mask=mask, other=0)
        stays = tl.where(is_tie & (number <= kept), ids, -1)
        last_id = tl.maximum(last_id, tl.max(tl.reshape(stays, (PADDED * COLUMNS,)), axis=0))
        before += tl.sum(is_tie.to(tl.int32), axis=1)
    tl.store(nth_keys + row, nth.to(tl.int64))
    tl.store(last_ids + row, last_id)


@triton.jit
def _mask_kernel(
    output,
    output_stride_0,
    output_stride_1,
    logits,
    logits_stride_0,
    logits_stride_1,
    nth_keys,
    last_ids,
    vocabulary,
):
    row = tl.program_id(0).to(tl.int64)
    ids = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    mask = ids < vocabulary
    raw = tl.load(logits + row * logits_stride_0 + ids.to(tl.int64) * logits_stride_1, mask=mask, other=float("-inf"))
    wide = raw.to(tl.float32)
    key = key_of(tl.where(wide == 0.0, 0.0, wide)).to(tl.int64)
    nth = tl.load(nth_keys + row)
    stays = (key > nth) | ((key == nth) & (ids <= tl.load(last_ids + row)))
    stays = stays & (wide == wide)  # noqa: PLR0124
    out = output + row * output_stride_0 + ids.to(tl.int64) * output_stride_1
    tl.store(out, tl.where(stays, raw, float("-inf")).to(output.dtype.element_ty), mask=mask)


def apply_top_k_top_p(*, output: Any, logits: Any, k: Any, p: Any) -> None:
    rows, vocabulary = logits.shape
    if rows == 0:
        return
    chunk, pivots = CHUNK.value, PIVOTS.value
    chunks = triton.cdiv(vocabulary, chunk)
    padded = triton.next_power_of_2(chunks)
    floats = torch.empty(
        rows * chunks * (2 + chunk) + ROUNDS * rows * pivots * (1 + chunks), dtype=torch.float32, device=logits.device
    )
    tops, bottoms, tokens, levels, masses = floats.split(
        [rows * chunks, rows * chunks, rows * chunks * chunk, ROUNDS * rows * pivots, ROUNDS * rows * pivots * chunks]
    )
    counts = torch.empty(ROUNDS * rows * pivots * chunks, dtype=torch.int32, device=logits.device)
    places = torch.empty(rows * chunks * chunk, dtype=torch.int16, device=logits.device)
    lengths = torch.empty(rows * chunks, dtype=torch.int32, device=logits.device)
    nth_keys = torch.empty(rows, dtype=torch.int64, device=logits.device)
    last_ids = torch.empty(rows, dtype=torch.int32, device=logits.device)
    k = None if k is None else k.contiguous()
    p = None if p is None else p.contiguous()
    row = (logits, *logits.stride(), k, p)
    found = (tops, bottoms, levels, counts, masses)
    has = {"HAS_K": k is not None, "HAS_P": p is not None}
    # Many rows fill the device with fewer programs each, which then share the work of finding the interval.
    shared = (rows, triton.cdiv(chunks, max(1, min(8, rows * chunks // 1024))))
    if k is not None or p is not None:
        _survey_kernel[shared](tops, bottoms, *row, chunks, vocabulary, **has)
        for i in range(ROUNDS):
            _narrow_kernel[shared](*found, *row, chunks, vocabulary, ROUND=i, PADDED=padded, num_warps=8, **has)
        _gather_kernel[shared](
            tokens, places, lengths, *found, *row, chunks, vocabulary, ROUNDS=ROUNDS, PADDED=padded, num_warps=8, **has
        )
    _select_kernel[(rows,)](
        nth_keys,
        last_ids,
        tokens,
        places,
        lengths,
        *found,
        k,
        p,
        chunks,
        vocabulary,
        ROUNDS=ROUNDS,
        COLUMNS=max(chunk // padded, 1),
        PADDED=padded,
        num_warps=8,
        **has,
    )
    _mask_kernel[(rows, chunks)](output, *output.stride(), logits, *logits.stride(), nth_keys, last_ids, vocabulary)

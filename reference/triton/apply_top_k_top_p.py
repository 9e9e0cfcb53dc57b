"""apply_top_k_top_p: keep the first k tokens of a row, then the first ones that hold the probability p.

One program a row, one launch. A logit's bits, reordered, are an unsigned number with the same order, its
key; the rule is a threshold key and how many of the tokens that tie with it stay, the lower ids first.

1. Maximum and minimum of the row.
2. Narrow the row to an interval of logits (low, high] that holds the threshold and few tokens: each
   round counts and weighs the tokens above three pivots.
3. Copy the tokens of the interval together.
4. Find the threshold among them bit by bit: 32 counts for top-k, 32 sums of exponentials for top-p. If
   the interval would not get small (ties), the whole row takes the copy's place.
5. Mask the row.

Nothing depends on the batch, so a row has one answer in any batch. The search needs no sort.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ._request_state import nan_as_lowest

_ROUNDS: tl.constexpr = tl.constexpr(16)
_ALL: tl.constexpr = tl.constexpr(2**30)


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
def from_key(tokens, stride, n, trial, top, TILE: tl.constexpr):
    """How many of the tokens have a key of `trial` or above, and their weight."""
    count = tl.zeros((TILE,), tl.int32)
    mass = tl.zeros((TILE,), tl.float32)
    for start in tl.range(0, n, TILE, loop_unroll_factor=4):
        ids = start + tl.arange(0, TILE)
        x = load_row(tokens, stride, ids, ids < n)
        is_in = (key_of(x) >= trial) & (ids < n)
        count += is_in.to(tl.int32)
        mass += tl.where(is_in, weight(x, top), 0.0)
    return tl.sum(count, axis=0), tl.sum(mass, axis=0)


@triton.jit
def threshold(tokens, stride, n, base_count, base_mass, total, k, p, has_k, has_p, top, TILE: tl.constexpr):
    """The lowest key that stays, and how many of the tokens with it do.

    `tokens` hold the threshold; `base_count` and `base_mass` are what lies above them, `total` is the weight
    of the row. With both rules `tokens` hold the first k.
    """
    kth = tl.zeros((), tl.uint32)
    kept = tl.full((), _ALL, tl.int32)
    if has_k:
        bit = kth + 0x80000000
        for _ in range(32):
            trial = kth | bit
            bit = bit >> 1
            count, _ = from_key(tokens, stride, n, trial, top, TILE)
            kth = tl.where(base_count + count >= k, trial, kth)
        count, mass = from_key(tokens, stride, n, kth + 1, top, TILE)
        kept = k - base_count - count
        total = mass + kept.to(tl.float32) * weight(value_of(kth), top)
    nth = kth
    if has_p:
        # The smallest number stands for zero, so that the first token stays.
        target = tl.maximum(p * total, 1e-30)
        nth = kth * 0
        bit = nth + 0x80000000
        for _ in range(32):
            trial = nth | bit
            bit = bit >> 1
            _, mass = from_key(tokens, stride, n, trial, top, TILE)
            nth = tl.where((trial <= kth) | (base_mass + mass >= target), trial, nth)
        _, mass = from_key(tokens, stride, n, nth + 1, top, TILE)
        ties = (target - base_mass - mass) / tl.maximum(weight(value_of(nth), top), 1e-30)
        ties = tl.minimum(tl.maximum(tl.ceil(ties), 1.0), 1e9).to(tl.int32)
        kept = tl.where(nth == kth, tl.minimum(ties, kept), ties)
    return nth, kept


@triton.jit
def _mask_kernel(
    output,
    output_stride_0,
    output_stride_1,
    logits,
    logits_stride_0,
    logits_stride_1,
    ks,
    ps,
    scratch,
    vocabulary,
    HAS_K: tl.constexpr,
    HAS_P: tl.constexpr,
    TILE: tl.constexpr,
    CAPACITY: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    tokens = logits + row * logits_stride_0
    copied = scratch + row * CAPACITY
    zero = tl.zeros((), tl.int32)
    vocabulary = vocabulary + zero

    k = vocabulary
    if HAS_K:
        k = tl.load(ks + row).to(tl.int64)
        k = tl.where((k < 1) | (k > vocabulary), vocabulary, k).to(tl.int32)
    p = 1.0
    if HAS_P:
        p = tl.load(ps + row)
        p = tl.where(p >= 0.0, p, 0.0)
    has_k = k < vocabulary
    has_p = p < 1.0

    nth = tl.zeros((), tl.uint32)
    kept = tl.full((), _ALL, tl.int32)
    if has_k | has_p:
        tops = tl.full((TILE,), float("-inf"), tl.float32)
        bottoms = tl.full((TILE,), float("inf"), tl.float32)
        for start in tl.range(0, vocabulary, TILE, loop_unroll_factor=4):
            ids = start + tl.arange(0, TILE)
            x = load_row(tokens, logits_stride_1, ids, ids < vocabulary)
            tops = tl.maximum(tops, x)
            bottoms = tl.minimum(bottoms, tl.where(x > float("-inf"), x, float("inf")))
        top = tl.max(tops, axis=0)

        # The interval, what lies above its ends, and where the next pivots go.
        low = tl.full((), float("-inf"), tl.float32)
        high = tl.full((), float("inf"), tl.float32)
        left = tl.min(bottoms, axis=0)
        right = tl.minimum(top, 3.4e38)
        in_low = vocabulary
        in_high = zero
        high_mass = tl.zeros((), tl.float32)
        total = tl.zeros((), tl.float32)
        rounds = zero
        searching = (in_low > CAPACITY) & (left < right)
        while searching:
            width = right * 0.25 - left * 0.25
            pivot1 = left + width
            pivot2 = pivot1 + width
            pivot3 = pivot2 + width
            count1 = tl.zeros((TILE,), tl.int32)
            count2 = tl.zeros((TILE,), tl.int32)
            count3 = tl.zeros((TILE,), tl.int32)
            mass0 = tl.zeros((TILE,), tl.float32)
            mass1 = tl.zeros((TILE,), tl.float32)
            mass2 = tl.zeros((TILE,), tl.float32)
            mass3 = tl.zeros((TILE,), tl.float32)
            for start in tl.range(0, vocabulary, TILE, loop_unroll_factor=4):
                ids = start + tl.arange(0, TILE)
                x = load_row(tokens, logits_stride_1, ids, ids < vocabulary)
                w = weight(x, top)
                mass0 += w
                count1 += (x > pivot1).to(tl.int32)
                mass1 += tl.where(x > pivot1, w, 0.0)
                count2 += (x > pivot2).to(tl.int32)
                mass2 += tl.where(x > pivot2, w, 0.0)
                count3 += (x > pivot3).to(tl.int32)
                mass3 += tl.where(x > pivot3, w, 0.0)
            total = tl.sum(mass0, axis=0)
            for i in tl.static_range(3):
                pivot = pivot1 if i == 0 else (pivot2 if i == 1 else pivot3)
                count = tl.sum(count1 if i == 0 else (count2 if i == 1 else count3), axis=0)
                mass = tl.sum(mass1 if i == 0 else (mass2 if i == 1 else mass3), axis=0)
                # Top-p is over the first k, so that with both rules these decide.
                holds = tl.where(has_k, count >= k, mass >= p * total)
                if holds & (pivot > low):
                    low = pivot
                    left = pivot
                    in_low = count
                elif (not holds) & (pivot < right):
                    right = pivot
                    if not (has_k & has_p):
                        high = pivot
                        in_high = count
                        high_mass = mass
            rounds += 1
            searching = (in_low - in_high > CAPACITY) & (rounds < _ROUNDS) & (left < right)

        if in_low - in_high <= CAPACITY:
            n = zero
            for start in range(0, vocabulary, TILE):
                ids = start + tl.arange(0, TILE)
                x = load_row(tokens, logits_stride_1, ids, ids < vocabulary)
                is_in = (x > low) & (x <= high)
                places = n + tl.cumsum(is_in.to(tl.int32), axis=0) - 1
                tl.store(copied + places, x, mask=is_in)
                n += tl.sum(is_in.to(tl.int32), axis=0)
            tl.debug_barrier()
            if rounds == 0:
                _, total = from_key(copied, 1, n, tl.zeros((), tl.uint32), top, TILE)
            nth, kept = threshold(copied, 1, n, in_high, high_mass, total, k, p, has_k, has_p, top, TILE)
        else:
            nth, kept = threshold(tokens, logits_stride_1, vocabulary, 0, 0.0, total, k, p, has_k, has_p, top, TILE)

    seen = zero
    for start in range(0, vocabulary, TILE):
        ids = start + tl.arange(0, TILE)
        mask = ids < vocabulary
        raw = tl.load(tokens + ids.to(tl.int64) * logits_stride_1, mask=mask, other=float("-inf"))
        key = key_of(load_row(tokens, logits_stride_1, ids, mask))
        is_tie = (key == nth) & mask
        stays = key > nth
        ties = tl.sum(is_tie.to(tl.int32), axis=0)
        if seen + ties <= kept:
            stays = stays | is_tie
        elif ties > 0:
            stays = stays | (is_tie & (seen + tl.cumsum(is_tie.to(tl.int32), axis=0) <= kept))
        seen += ties
        stays = stays & (raw == raw)  # noqa: PLR0124
        out = output + row * output_stride_0 + ids.to(tl.int64) * output_stride_1
        tl.store(out, tl.where(stays, raw, float("-inf")).to(output.dtype.element_ty), mask=mask)


def apply_top_k_top_p(*, output: Any, logits: Any, k: Any, p: Any) -> None:
    rows, vocabulary = logits.shape
    if rows == 0:
        return
    capacity = 8192
    scratch = torch.empty((rows, capacity), dtype=torch.float32, device=logits.device)
    _mask_kernel[(rows,)](
        output,
        *output.stride(),
        logits,
        *logits.stride(),
        None if k is None else k.contiguous(),
        None if p is None else p.contiguous(),
        scratch,
        vocabulary,
        HAS_K=k is not None,
        HAS_P=p is not None,
        TILE=4096,
        CAPACITY=capacity,
        num_warps=32,
    )

"""Interval of logits (low, high] for the threshold of each row, or the threshold itself where few tokens can stay.

The interval comes from a part of the row, or of a row with fewer tokens to keep than groups from their maxima alone: at
least k tokens are as large as the k-th largest maximum of a group. If few groups reach it, and few of their tokens, all
pairs of these are compared: a token stays if fewer than k come before it, and with top-p if these weigh too little.

An interval is a guess: ``_thresholds`` weighs what is in it and above it, and takes the whole row if it is wrong.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ._launches import launch
from ._logit_keys import KeyRows, limits, load_ordered, needs_threshold, scale_of_row, target_of, weight
from ._threshold_gather import TILE, TILES
from ._threshold_guess import SAMPLE, guess_by_count, guess_by_mass, load_sample
from ._threshold_search import CHUNK, FEW, FIELDS, GROUP, GROUPS, HIGH, LOW, TOP, TOTAL, Search

HALF: tl.constexpr = tl.constexpr(FEW.value // 2)


@triton.jit
def select_few(thresholds, search, rows, row, k, p, low, top, is_near, PADDED: tl.constexpr):
    """Find the threshold of a row with top-k, and the weights of its tiles; return False if many tokens are near it.

    Args:
        thresholds: memory for the threshold.
        search: memory of the search, with the maxima of chunks.
        rows: rows with limits.
        row: the row.
        k: tokens to keep, fewer than the vocabulary.
        p: probability to keep of these.
        low: logit that fewer than k tokens are above only if it is minus infinity.
        top: maximum of the row.
        is_near: groups with tokens above `low`, at most FEW.
        PADDED: power of two, at least the chunks of a row.
    """
    lane = tl.arange(0, PADDED * GROUPS)
    near = is_near.to(tl.int32)
    tl.store(search.few_groups + row * FEW + tl.cumsum(near, axis=0) - 1, lane, mask=is_near)
    groups = tl.sum(near, axis=0)
    tl.debug_barrier()
    found = tl.zeros((), tl.int32)
    for start in range(0, groups, HALF):
        turn = start + tl.arange(0, HALF)
        group = tl.load(search.few_groups + row * FEW + turn, mask=turn < groups, other=0)
        ids = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
        x = load_ordered(rows, row, ids, (turn < groups)[:, None] & (ids < rows.vocabulary))
        is_above = (x > low).to(tl.int32)
        in_group = tl.sum(is_above, axis=1)
        before = found + tl.cumsum(in_group, axis=0) - in_group
        place = before[:, None] + tl.cumsum(is_above, axis=1) - 1
        is_token = (is_above > 0) & (place < FEW)
        tl.store(search.few_ids + row * FEW + place, ids, mask=is_token)
        tl.store(search.few_values + row * FEW + place, x, mask=is_token)
        found += tl.sum(in_group, axis=0)
    is_few = (found <= FEW) & ((found >= k) | (low == float("-inf")))
    if is_few:
        tl.debug_barrier()
        keep_first(thresholds, search, rows, row, k, p, top, found, PADDED)
    return is_few


@triton.jit
def keep_first(thresholds, search, rows, row, k, p, top, found, PADDED: tl.constexpr):
    """Find and store the threshold of a row among its `found` largest tokens, which are listed by id."""
    lane = tl.arange(0, FEW)
    few_ids = search.few_ids + row * FEW
    few_values = search.few_values + row * FEW
    ids = tl.load(few_ids + lane, mask=lane < found, other=0)
    x = tl.load(few_values + lane, mask=lane < found, other=float("-inf"))
    scale = scale_of_row(rows, row)
    rank = tl.zeros((FEW,), tl.int32)
    ahead = tl.zeros((FEW,), tl.float32)
    for j in range(found):
        other = tl.load(few_values + j)
        comes_before = (other > x) | ((other == x) & (j < lane))
        rank += comes_before.to(tl.int32)
        if rows.p is not None:
            ahead += tl.where(comes_before, weight(other, top, scale), 0.0)
    stays = (lane < found) & (rank < k)
    if rows.p is not None:  # noqa: SIM102 -- decided when the kernel is compiled
        if p < 1.0:
            # The tokens ahead of one of the first k are among the k too. A minimum above zero keeps the first token.
            mass = tl.sum(tl.where(stays, weight(x, top, scale), 0.0), axis=0)
            stays = stays & (ahead < tl.maximum(p * mass, 1e-30))
    nth_logit = tl.min(tl.where(stays, x, float("inf")), axis=0)
    last_id = tl.max(tl.where(stays & (x == nth_logit), ids, -1), axis=0)
    at = target_of(rows, row)
    tl.store(thresholds.nth_logit + at, tl.where(last_id >= 0, nth_logit, float("-inf")))
    tl.store(thresholds.last_id + at, last_id)
    if search.tiles is not None:
        chunk = ids // CHUNK
        tops = tl.load(search.tops + row * rows.chunks + chunk, mask=stays, other=0.0)
        tl.debug_barrier()  # no thread loads a logit where another has stored a weight
        tl.store(few_values + lane, tl.where(stays, weight(x, tops, scale), 0.0), mask=lane < found)
        tiles = search.pool + row * rows.chunks * TILES
        totals = search.kept + row * rows.chunks
        every = tl.arange(0, PADDED * TILES)
        tl.store(tiles + every, 0.0, mask=every < rows.chunks * TILES)
        tl.store(totals + tl.arange(0, PADDED), 0.0, mask=tl.arange(0, PADDED) < rows.chunks)
        tl.debug_barrier()
        in_tile = tl.zeros((FEW,), tl.float32)
        in_chunk = tl.zeros((FEW,), tl.float32)
        for j in range(found):
            other = tl.load(few_ids + j)
            mass = tl.load(few_values + j)
            in_tile += tl.where(other // TILE == ids // TILE, mass, 0.0)
            in_chunk += tl.where(other // CHUNK == chunk, mass, 0.0)
        tl.store(tiles + ids // TILE, in_tile, mask=stays)
        tl.store(totals + chunk, in_chunk, mask=stays)


@triton.jit
def guess(thresholds, search, rows, row, k, p, PADDED: tl.constexpr):
    """Store the maximum of a row with limits, its weight, and an interval; return True if its threshold is stored."""
    is_found = tl.full((), False, tl.int1)
    has_k = k < rows.vocabulary
    fields = search.state + row * FIELDS
    lane = tl.arange(0, PADDED)
    tops = tl.load(search.tops + row * rows.chunks + lane, mask=lane < rows.chunks, other=float("-inf"))
    top = tl.max(tops, axis=0)
    tl.store(fields + TOP, top)
    factor = tl.maximum(rows.vocabulary / SAMPLE, 1.0)
    if rows.k is not None:  # noqa: SIM102 -- decided when the kernel is compiled
        if has_k:
            if k <= rows.vocabulary // GROUP:
                group = tl.arange(0, PADDED * GROUPS)
                exists = group < rows.chunks * GROUPS
                maxima = tl.load(search.maxima + row * rows.chunks * GROUPS + group, mask=exists, other=float("-inf"))
                low, _high = guess_by_count(maxima, exists, top, k, 1.0)
                tl.store(fields + LOW, low)
                tl.store(fields + HIGH, top)
                is_near = maxima > low
                if tl.sum(is_near.to(tl.int32), axis=0) <= FEW:
                    is_found = select_few(thresholds, search, rows, row, k, p, low, top, is_near, PADDED)
            else:
                x, mask = load_sample(rows, row)
                low, high = guess_by_count(x, mask, top, k, factor)
                tl.store(fields + LOW, low)
                # With both limits top-p applies to the first k tokens.
                tl.store(fields + HIGH, tl.where(p < 1.0, top, high))
    if rows.p is not None:  # noqa: SIM102
        if not has_k:
            scale = scale_of_row(rows, row)
            totals = tl.load(search.totals + row * rows.chunks + lane, mask=lane < rows.chunks, other=0.0)
            total = tl.sum(totals * weight(tops, top, scale), axis=0)
            tl.store(fields + TOTAL, total)
            x, mask = load_sample(rows, row)
            low, high = guess_by_mass(x, mask, top, total, scale, p, rows.vocabulary, factor)
            tl.store(fields + LOW, low)
            tl.store(fields + HIGH, high)
    return is_found


@triton.jit
def _guess_kernel(thresholds, search, rows, PADDED: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    if needs_threshold(rows, row):
        k, p = limits(rows, row)
        if (k < rows.vocabulary) | (p < 1.0):
            if not guess(thresholds, search, rows, row, k, p, PADDED):
                n = tl.atomic_add(search.needed_count, 1, sem="relaxed")
                tl.store(search.needed + n, row)
        else:
            at = target_of(rows, row)
            tl.store(thresholds.nth_logit + at, float("-inf"))
            tl.store(thresholds.last_id + at, -1)


def guess_intervals(thresholds: Any, search: Search, rows: KeyRows, count: int) -> None:
    """Guess an interval for every row that needs one, and set the thresholds of the others."""
    padded = triton.next_power_of_2(rows.chunks)
    launch(_guess_kernel, (count,), thresholds, search, rows, PADDED=padded, num_warps=8, maxnreg=128)

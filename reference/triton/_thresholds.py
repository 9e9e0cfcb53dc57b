"""Thresholds of top-k and top-p: for each row the lowest logit that stays, and the last id that stays among equal ones.

A logit's bits, reordered, are an unsigned key with the same order.

1. interval: find an interval of logits that contains the threshold and few tokens (``_threshold_search``).
2. gather: store the places of its tokens, chunk by chunk.
3. select: find the threshold among them by radix search, two bits per pass.

Nothing is sorted, and a row's result does not depend on the batch. Ties may keep an interval large, which makes it
slower to search but changes no result.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ._logit_keys import KeyRows, key_of, limits, load_ordered, owner_of, scale_of_row, value_of, weight
from ._threshold_search import (
    ABOVE,
    CHUNK,
    FIELDS,
    GROUP,
    GROUPS,
    HIGH,
    LOW,
    TOP,
    TOTAL,
    Search,
    find_intervals,
    programs_per_row,
)

ALL: tl.constexpr = tl.constexpr(2**30)
NARROW: tl.constexpr = tl.constexpr(16)
"""Gathered tokens per chunk up to which a program holds this many, instead of as many as it can."""
NEAR: tl.constexpr = tl.constexpr(8)
"""Groups above the lower bound up to which a program reads this many of a chunk, instead of all."""
RUN: tl.constexpr = tl.constexpr(16)
"""Tokens of a chunk that are counted together."""
SPAN = 8
"""Chunks that a program gathers where rows alone fill the device."""
TILE: tl.constexpr = tl.constexpr(256)
"""Tokens whose weights are summed for a draw."""
WINDOW = 4096
"""Gathered tokens that a program holds at once, over all chunks."""


class Thresholds(NamedTuple):
    """Thresholds of rows: the lowest logit to keep, the last of equal ids to keep, and whether sums are known."""

    nth_logit: Any
    last_id: Any
    is_summed: Any


class Sums(NamedTuple):
    """Tokens that stay: maximum and weight of each chunk [rows, chunks] and weight of each tile, relative to it."""

    top: Any
    total: Any
    tiles: Any


@triton.jit
def store_sums(sums, rows, row, x, ids, nth_logit, last_id, scale, PADDED: tl.constexpr):
    """Store the sums of a row whose tokens that stay are all among the gathered logits `x`."""
    stays = (x > nth_logit) | ((x == nth_logit) & (ids <= last_id))
    top = tl.max(tl.where(stays, x, float("-inf")), axis=1)
    weights = tl.where(stays, weight(x, top[:, None], scale), 0.0)
    lane = tl.arange(0, PADDED)
    mask = lane < rows.chunks
    at = row * rows.chunks + lane
    tl.store(sums.top + at, top, mask=mask)
    tl.store(sums.total + at, tl.sum(weights, axis=1), mask=mask)
    tile = ids % CHUNK // TILE
    for i in tl.static_range(CHUNK // TILE):
        in_tile = tl.sum(tl.where(tile == i, weights, 0.0), axis=1)
        tl.store(sums.tiles + at * (CHUNK // TILE) + i, in_tile, mask=mask)


@triton.jit
def bounds(search, row, has_both):
    """Return the interval of a row. With both limits top-p applies to the first k tokens, all above the lower bound."""
    fields = search.state + row * FIELDS
    top = tl.load(fields + TOP)
    return tl.load(fields + LOW), tl.where(has_both, top, tl.minimum(tl.load(fields + HIGH), top))


@triton.jit
def gather(places, lengths, rows, row, chunk, ids, mask, low, high):
    """Store the places of the tokens of `ids`, [chunks, groups, tokens], that the interval holds, and their numbers."""
    at = row * rows.chunks + chunk
    x = load_ordered(rows, row, ids, mask)
    is_in = ((x > low) & (x <= high)).to(tl.int32)
    in_group = tl.sum(is_in, axis=2)
    before = tl.cumsum(in_group, axis=1) - in_group
    place = before[:, :, None] + tl.cumsum(is_in, axis=2) - 1
    tl.store(places + at[:, None, None] * CHUNK + place, ids % CHUNK, mask=is_in > 0)
    tl.store(lengths + at, tl.sum(in_group, axis=1), mask=chunk < rows.chunks)


@triton.jit
def gather_few(places, lengths, rows, row, chunk, is_near, count, low, high):
    """Gather the tokens of the few groups of each chunk that are near, without a look at the others."""
    turn = tl.arange(0, NEAR)
    turns = tl.where(is_near, tl.cumsum(is_near.to(tl.int32), axis=1) - 1, NEAR)
    is_turn = turns[:, None, :] == turn[None, :, None]
    near = tl.sum(tl.where(is_turn, tl.arange(0, GROUPS)[None, None, :], 0), axis=2)
    start = chunk[:, None] * CHUNK + near * GROUP
    ids = start[:, :, None] + tl.arange(0, GROUP)[None, None, :]
    mask = (turn[None, :] < count[:, None])[:, :, None] & (ids < rows.vocabulary)
    gather(places, lengths, rows, row, chunk, ids, mask, low, high)


@triton.jit
def gather_all(places, lengths, rows, row, chunk, low, high):
    """Gather the tokens of all groups of a chunk."""
    at = row * rows.chunks + chunk
    lane = tl.arange(0, CHUNK)
    ids = chunk * CHUNK + lane
    x = load_ordered(rows, row, ids, ids < rows.vocabulary)
    is_in = ((x > low) & (x <= high)).to(tl.int32)
    # Short sums inside each run, then one over the runs: less than half the time of one over the chunk.
    runs = tl.reshape(is_in, (CHUNK // RUN, RUN))
    in_run = tl.sum(runs, axis=1)
    before = tl.cumsum(in_run, axis=0) - in_run
    place = tl.reshape(before[:, None] + tl.cumsum(runs, axis=1) - 1, (CHUNK,))
    tl.store(places + at * CHUNK + place, lane, mask=is_in > 0)
    tl.store(lengths + at, tl.sum(in_run, axis=0))


@triton.jit
def _gather_kernel(places, lengths, search, rows, SPAN: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    k, p = limits(rows, row)
    if (k >= rows.vocabulary) & (p >= 1.0):
        return
    low, high = bounds(search, row, (k < rows.vocabulary) & (p < 1.0))
    start = tl.program_id(1) * SPAN
    chunk = start + tl.arange(0, SPAN)
    at = (row * rows.chunks + chunk)[:, None] * GROUPS + tl.arange(0, GROUPS)[None, :]
    maxima = tl.load(search.maxima + at, mask=(chunk < rows.chunks)[:, None], other=float("-inf"))
    is_near = maxima > low
    count = tl.sum(is_near.to(tl.int32), axis=1)
    if tl.max(count, axis=0) <= NEAR:
        gather_few(places, lengths, rows, row, chunk, is_near, count, low, high)
    else:
        for one in range(start, tl.minimum(start + SPAN, rows.chunks)):
            gather_all(places, lengths, rows, row, one, low, high)


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
def measured(x, origin, top, scale, BY_COUNT: tl.constexpr):
    """Return ranks and weights of tokens, in one column."""
    x = tl.reshape(x, (x.shape[0] * x.shape[1], 1))
    return rank_of(x, origin), tl.where(x > float("-inf"), 1.0 if BY_COUNT else weight(x, top, scale), 0.0)


@triton.jit
def measure_from(
    first, gathered, trial, top, scale, BY_COUNT: tl.constexpr, COLUMNS: tl.constexpr, PADDED: tl.constexpr
):
    """Return the weight of the gathered tokens with at least each rank of `trial`.

    `first` is ranks and weights of the first columns, which stay in registers. Usually there are no others.
    """
    rank, measure = first
    total = tl.sum(tl.where(rank >= trial[None, :], measure, 0.0), axis=0)
    for start in range(COLUMNS, gathered[4], COLUMNS):
        x, _ids = load_gathered(gathered, start, COLUMNS, PADDED)
        rank, measure = measured(x, gathered[5], top, scale, BY_COUNT)
        total += tl.sum(tl.where(rank >= trial[None, :], measure, 0.0), axis=0)
    return total


@triton.jit
def largest_rank(
    first,
    gathered,
    most,
    floor,
    need,
    top,
    scale,
    BY_COUNT: tl.constexpr,
    COLUMNS: tl.constexpr,
    PADDED: tl.constexpr,
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
        total = measure_from(first, gathered, trial, top, scale, BY_COUNT, COLUMNS, PADDED)
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
def select(thresholds, sums, at, gathered, search, k, p, most, COLUMNS: tl.constexpr, PADDED: tl.constexpr):
    """Find the threshold of a row with limits among its gathered tokens, and store it as that of row `at`."""
    rows = gathered[0]
    row = gathered[1]
    origin = gathered[5]
    has_k = k < rows.vocabulary
    has_both = has_k & (p < 1.0)
    fields = search.state + row * FIELDS
    top = tl.load(fields + TOP)
    scale = scale_of_row(rows, row)
    x, ids = load_gathered(gathered, 0, COLUMNS, PADDED)

    # Rank 0 is below every token's rank. It keeps all tokens, even if rounding leaves their weight below the target.
    nth = tl.zeros((), tl.uint32)
    kept = tl.full((), ALL, tl.int32)
    above = tl.where(has_both, 0.0, tl.load(fields + ABOVE))
    if rows.k is not None:  # noqa: SIM102 -- decided when the kernel is compiled
        if has_k:
            first = measured(x, origin, top, scale, True)
            nth, more = largest_rank(first, gathered, most, nth, k - above, top, scale, True, COLUMNS, PADDED)
            if nth > 0:
                kept = k - (above + more).to(tl.int32)
    if rows.p is not None:  # noqa: SIM102
        if p < 1.0:
            kth = nth
            first = measured(x, origin, top, scale, False)
            target = p * tl.load(fields + TOTAL) - above
            if rows.k is not None:  # noqa: SIM102
                if has_k:
                    after = kth + tl.full((1,), 1, tl.uint32)
                    mass = tl.sum(measure_from(first, gathered, after, top, scale, False, COLUMNS, PADDED), axis=0)
                    if kth > 0:
                        mass += kept.to(tl.float32) * weight(value_of(origin + kth), top, scale)
                    target = p * mass
            # A minimum above zero keeps the first token.
            target = tl.maximum(target, 1e-30)
            nth, more = largest_rank(first, gathered, most, kth, target, top, scale, False, COLUMNS, PADDED)
            if nth > 0:
                ties = (target - more) / tl.maximum(weight(value_of(origin + nth), top, scale), 1e-30)
                ties = tl.minimum(tl.maximum(tl.ceil(ties), 1.0), 1e9).to(tl.int32)
                kept = tl.where(nth == kth, tl.minimum(ties, kept), ties)
    last_id = last_tie(x, gathered, nth, kept, COLUMNS, PADDED)
    # Rank 0 means no token: drop logits at or below the lower bound.
    last_id = tl.where(nth > 0, last_id, -1)
    nth_logit = value_of(origin + nth)
    tl.store(thresholds.nth_logit + at, nth_logit)
    tl.store(thresholds.last_id + at, last_id)
    if sums is not None:
        # The program that holds few tokens sums them, if none of the row lies above the interval.
        is_summed = False
        if COLUMNS == NARROW:
            is_summed = value_of(origin + most) >= top
            if is_summed:
                store_sums(sums, rows, row, x, ids, nth_logit, last_id, scale, PADDED)
        tl.store(thresholds.is_summed + at, is_summed)


@triton.jit
def _select_kernel(thresholds, sums, places, lengths, search, rows, COLUMNS: tl.constexpr, PADDED: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = row
    if rows.columns is not None:
        at, state = owner_of(rows, row)
        if state < 0:
            return
    k, p = limits(rows, row)
    has_k = k < rows.vocabulary
    if (not has_k) & (p >= 1.0):
        tl.store(thresholds.nth_logit + at, float("-inf"))
        tl.store(thresholds.last_id + at, -1)
        if sums is not None:
            tl.store(thresholds.is_summed + at, False)
        return
    low, high = bounds(search, row, has_k & (p < 1.0))
    origin = key_of(low)
    most = key_of(high) - origin
    lane = tl.arange(0, PADDED)
    length = tl.load(lengths + row * rows.chunks + lane, mask=lane < rows.chunks, other=0)
    longest = tl.max(length, axis=0)
    gathered = (rows, row, places, length, longest, origin)
    if longest <= NARROW:
        select(thresholds, sums, at, gathered, search, k, p, most, NARROW, PADDED)
    else:
        select(thresholds, sums, at, gathered, search, k, p, most, COLUMNS, PADDED)


def find_thresholds(rows: KeyRows, count: int, sums: Sums | None = None) -> tuple[Thresholds, Search]:
    """Return the thresholds of `count` rows, by row of logits, and their search with the maxima of groups.

    Args:
        rows: the rows and their limits.
        count: number of rows, those without a request included.
        sums: memory for the sums of rows with few tokens; None to store none.
    """
    device = rows.logits.device
    search = find_intervals(rows, count)
    places = torch.empty((count, rows.chunks, CHUNK.value), dtype=torch.int16, device=device)
    lengths = torch.empty((count, rows.chunks), dtype=torch.int32, device=device)
    numbers = torch.empty((3, rows.logits.shape[0]), dtype=torch.int32, device=device)
    thresholds = Thresholds(numbers[0].view(torch.float32), numbers[1], numbers[2])
    span = 1 if programs_per_row(rows, count) == rows.chunks else SPAN
    warps = 4 if rows.p is None else 8  # the interval of top-p takes whole chunks
    _gather_kernel[(count, triton.cdiv(rows.chunks, span))](places, lengths, search, rows, SPAN=span, num_warps=warps)
    padded = triton.next_power_of_2(rows.chunks)
    columns = min(max(WINDOW // padded, 1), CHUNK.value)
    _select_kernel[(count,)](
        thresholds, sums, places, lengths, search, rows, COLUMNS=columns, PADDED=padded, num_warps=8
    )
    return thresholds, search

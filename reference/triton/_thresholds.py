"""Thresholds of top-k and top-p: for each row the lowest logit that stays, and the last id that stays among equal ones.

A logit's bits, reordered, are an unsigned key with the same order.

1. interval: guess an interval of logits that contains the threshold and few tokens, or find the threshold of a row of
which few tokens can stay (``_threshold_interval``).
2. gather: store the places of its tokens, chunk by chunk, and add up what is above it.
3. select: find the threshold among them by radix search, two or three bits per pass. If the weights show that the
interval does not contain it, search the whole row.

Nothing is sorted, and a row's result does not depend on the batch. Ties may keep an interval large, which makes it
slower to search but changes no result.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ._launches import launch
from ._logit_keys import (
    KeyRows,
    key_of,
    limits,
    load_ordered,
    scale_of_row,
    target_of,
    value_of,
    weight,
)
from ._threshold_gather import TILE, TILES, Gathered, gather_intervals
from ._threshold_interval import guess_intervals
from ._threshold_search import (
    CHUNK,
    FIELDS,
    HIGH,
    LOW,
    TOP,
    TOTAL,
    Search,
    needed_row,
)

ALL: tl.constexpr = tl.constexpr(2**30)
NARROW: tl.constexpr = tl.constexpr(16)
"""Gathered tokens per chunk up to which a program holds this many, instead of as many as it can."""
MULTIPROCESSORS = 128
"""Programs up to which each has a multiprocessor of its own."""
WINDOW = 512
"""Gathered tokens that a warp holds at once, over all chunks."""


class Thresholds(NamedTuple):
    """Thresholds of rows: the lowest logit to keep, and the last of equal ids to keep."""

    nth_logit: Any
    last_id: Any


@triton.jit
def load_gathered(gathered, start, COLUMNS: tl.constexpr, PADDED: tl.constexpr):
    """Load `COLUMNS` gathered logits of every chunk and their ids; minus infinity past a chunk's end.

    In a row that is taken whole no token is listed, and a token's place is its column.
    """
    rows, row, places, length, _longest, _origin, listed = gathered
    chunk = tl.arange(0, PADDED)[:, None]
    column = start + tl.arange(0, COLUMNS)[None, :]
    mask = column < length[:, None]
    at = (row * rows.chunks + chunk) * CHUNK + column
    is_listed = column < listed[:, None]
    place = tl.where(is_listed, tl.load(places + at, mask=is_listed, other=0).to(tl.int32), column)
    ids = chunk * CHUNK + place
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
    # Bits per pass; of those past the highest a trial loses all, and is another's double.
    BITS: tl.constexpr = 3 if COLUMNS == NARROW else 2
    digit = tl.arange(0, 2**BITS).to(tl.uint32)
    shift = tl.full((), 30, tl.int32)
    while (shift > 0) & ((most >> shift.to(tl.uint32)) == 0):
        shift -= BITS
    found = tl.zeros((), tl.uint32)
    above = tl.zeros((), tl.float32)
    while shift >= 0:
        trial = found | (digit << shift.to(tl.uint32))
        total = measure_from(first, gathered, trial, top, scale, BY_COUNT, COLUMNS, PADDED)
        holds = (trial <= floor) | (total >= need)
        found = tl.max(tl.where(holds, trial, found), axis=0)
        # The smallest of the ranks that weigh too little becomes the next one above.
        above = tl.maximum(above, tl.max(tl.where(holds, 0.0, total), axis=0))
        shift -= BITS
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
def store_sums(search, x, ids, gathered, above, nth_logit, last_id, scale, COLUMNS: tl.constexpr, PADDED: tl.constexpr):
    """Add the gathered tokens that stay, of which `x` is the first columns, to the weights of their tiles."""
    rows = gathered[0]
    mask = tl.arange(0, PADDED) < rows.chunks
    at = gathered[1] * rows.chunks + tl.arange(0, PADDED)
    tops = tl.load(search.tops + at, mask=mask, other=float("-inf"))[:, None]
    tile = tl.arange(0, TILES)[None, :]
    high = tl.load(search.tiles + at[:, None] * TILES + tile, mask=mask[:, None], other=0.0)
    # Nothing is above a row that is taken whole.
    high = tl.where(above > 0.0, high, 0.0)
    tl.debug_barrier()  # no thread loads what another has stored
    stays = ((x > nth_logit) | ((x == nth_logit) & (ids <= last_id))) & (x > float("-inf"))
    mass = tl.where(stays, weight(x, tops, scale), 0.0)
    total = tl.zeros((PADDED,), tl.float32)
    for i in range(TILES):
        in_tile = tl.sum(tl.where(ids % CHUNK // TILE == i, mass, 0.0), axis=1)
        for start in range(COLUMNS, gathered[4], COLUMNS):
            more, more_ids = load_gathered(gathered, start, COLUMNS, PADDED)
            is_here = (more > nth_logit) | ((more == nth_logit) & (more_ids <= last_id))
            is_here = is_here & (more > float("-inf")) & (more_ids % CHUNK // TILE == i)
            in_tile += tl.sum(tl.where(is_here, weight(more, tops, scale), 0.0), axis=1)
        in_tile += tl.sum(tl.where(tile == i, high, 0.0), axis=1)
        tl.store(search.tiles + at * TILES + i, in_tile, mask=mask)
        total += in_tile
    tl.store(search.totals + at, total, mask=mask)


@triton.jit
def select(thresholds, search, at, gathered, above, k, p, most, COLUMNS: tl.constexpr, PADDED: tl.constexpr):
    """Find the threshold of a row with limits among its gathered tokens, and store it as that of row `at`."""
    rows = gathered[0]
    row = gathered[1]
    origin = gathered[5]
    has_k = k < rows.vocabulary
    fields = search.state + row * FIELDS
    top = tl.load(fields + TOP)
    scale = scale_of_row(rows, row)
    x, ids = load_gathered(gathered, 0, COLUMNS, PADDED)

    # Rank 0 is below every token's rank. It keeps all tokens, even if rounding leaves their weight below the target.
    nth = tl.zeros((), tl.uint32)
    kept = tl.full((), ALL, tl.int32)
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
    if search.tiles is not None:
        store_sums(search, x, ids, gathered, above, nth_logit, last_id, scale, COLUMNS, PADDED)


@triton.jit
def select_row(thresholds, search, gathered, rows, row, k, p, COLUMNS: tl.constexpr, PADDED: tl.constexpr):
    """Find the threshold of a row with limits: in its interval if that contains it, else in the whole row."""
    has_k = k < rows.vocabulary
    fields = search.state + row * FIELDS
    top = tl.load(fields + TOP)
    low = tl.load(fields + LOW)
    scale = scale_of_row(rows, row)
    lane = tl.arange(0, PADDED)
    is_chunk = lane < rows.chunks
    chunk = row * rows.chunks + lane
    length = tl.load(gathered.lengths + chunk, mask=is_chunk, other=0)
    tops = tl.load(search.tops + chunk, mask=is_chunk, other=float("-inf"))
    share = tl.where(has_k, 1.0, weight(tops, top, scale))
    above = tl.sum(tl.load(search.above + chunk, mask=is_chunk, other=0.0) * share, axis=0)
    within = tl.sum(tl.load(search.within + chunk, mask=is_chunk, other=0.0) * share, axis=0)
    need = k.to(tl.float32)
    if rows.p is not None:
        need = tl.where(has_k, need, tl.maximum(p * tl.load(fields + TOTAL), 1e-30))
    is_wrong = (above >= need) | ((above + within < need) & (low > float("-inf")))
    whole = tl.minimum(tl.maximum(rows.vocabulary - lane * CHUNK, 0), CHUNK)
    listed = tl.where(is_wrong, 0, length)
    length = tl.where(is_wrong, whole, length)
    above = tl.where(is_wrong, 0.0, above)
    low = tl.where(is_wrong, float("-inf"), low)
    origin = key_of(low)
    most = key_of(tl.where(is_wrong, top, tl.load(fields + HIGH))) - origin
    longest = tl.max(length, axis=0)
    tokens = (rows, row, gathered.places, length, longest, origin, listed)
    at = target_of(rows, row)
    if longest <= NARROW:
        select(thresholds, search, at, tokens, above, k, p, most, NARROW, PADDED)
    else:
        select(thresholds, search, at, tokens, above, k, p, most, COLUMNS, PADDED)


@triton.jit
def _select_kernel(thresholds, search, gathered, rows, COLUMNS: tl.constexpr, PADDED: tl.constexpr):
    n = 0
    row = needed_row(search, rows, n)
    while row >= 0:
        k, p = limits(rows, row)
        select_row(thresholds, search, gathered, rows, row, k, p, COLUMNS, PADDED)
        n += 1
        row = needed_row(search, rows, n)


def make_thresholds(count: int, device: Any) -> Thresholds:
    """Allocate the thresholds of `count` rows of logits."""
    numbers = torch.empty((2, count), dtype=torch.int32, device=device)
    return Thresholds(numbers[0].view(torch.float32), numbers[1])


def find_thresholds(
    search: Search, thresholds: Thresholds, gathered: Gathered, rows: KeyRows, programs: int
) -> Thresholds:
    """Find the thresholds of rows, by row of logits, and return them.

    Args:
        search: results of a survey of the rows. With tiles the weights of the tokens that stay take their place.
        thresholds: memory for the thresholds.
        gathered: memory for the tokens of the intervals; places that it lacks are allocated.
        rows: the rows and their limits.
        programs: number of programs of a kernel that has one for each request, or for each row where there are none.
    """
    guess_intervals(thresholds, search, rows, programs)
    gathered = gather_intervals(gathered, search, rows, programs)
    warps = 4 if rows.p is None else 8
    select_registers = 128 if rows.p is not None and programs > MULTIPROCESSORS else 255
    padded = triton.next_power_of_2(rows.chunks)
    columns = min(max(warps * WINDOW // padded, 1), CHUNK.value)
    options = {"COLUMNS": columns, "PADDED": padded, "num_warps": warps, "maxnreg": select_registers}
    launch(_select_kernel, (programs,), thresholds, search, gathered, rows, **options)
    return thresholds

"""Thresholds of top-k and top-p: for each row the lowest logit that stays, and the last id that stays among equal ones.

A logit's bits, reordered, are an unsigned key with the same order.

1. interval: guess an interval of logits that contains the threshold and few tokens, or find the threshold of a row of
which few tokens can stay (``_threshold_interval``).
2. gather: mark its tokens, one bit for every token of the row, and add up what is above it.
3. select: list them, and find the threshold among them by radix search, two bits per pass. If the weights show
that the interval does not contain it, or its tokens are too many for the list, search the whole row.

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
from ._threshold_gather import BITS, LISTED, TILE, TILES, WORDS, Gathered, gather_intervals, search_programs
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
COLUMNS: tl.constexpr = tl.constexpr(8)
"""Listed tokens of a tile whose weights are added at once."""
NARROW: tl.constexpr = tl.constexpr(1024)
"""Listed tokens up to which a program holds this many, instead of as many as it can or half of that."""
WINDOW = 1024
"""Tokens that a warp holds at most."""
WARPS = 8
REGISTERS = 128
"""Maximum registers per thread of many programs, so that two share a multiprocessor."""
MULTIPROCESSORS = 128
"""Programs up to which each has a multiprocessor of its own."""


class Thresholds(NamedTuple):
    """Thresholds of rows: the lowest logit to keep, and the last of equal ids to keep."""

    nth_logit: Any
    last_id: Any


@triton.jit
def ones_in(words):
    """Return the number of ones in unsigned words of 32 bits."""
    pairs = words - ((words >> 1) & 0x55555555)
    fours = (pairs & 0x33333333) + ((pairs >> 2) & 0x33333333)
    return ((((fours + (fours >> 4)) & 0x0F0F0F0F) * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def load_words(gathered, rows, row, PADDED: tl.constexpr):
    """Load the bits of a row's tokens, and count those of every word."""
    word = tl.arange(0, PADDED * WORDS)
    words = tl.load(gathered.words + row * rows.chunks * WORDS + word, mask=word < rows.chunks * WORDS, other=0)
    words = words.to(tl.uint32, bitcast=True)
    return words, ones_in(words)


@triton.jit
def list_tokens(listed, gathered, rows, row, PADDED: tl.constexpr):
    """List the ids of a row's gathered tokens, ascending, if the list is long enough; return their number."""
    words, counts = load_words(gathered, rows, row, PADDED)
    length = tl.sum(counts, axis=0)
    if length <= PADDED * LISTED:
        first = tl.arange(0, PADDED * WORDS) * BITS
        place = tl.cumsum(counts, axis=0) - counts
        for _turn in range(tl.max(counts, axis=0)):
            others = words & (words - 1)
            # The lowest bit is a power of two, whose exponent is its number.
            lowest = (words ^ others).to(tl.float32)
            bit = (lowest.to(tl.int32, bitcast=True) >> 23) - 127
            tl.store(listed + place, first + bit, mask=words != 0)
            place += 1
            words = others
        tl.debug_barrier()
    return length


@triton.jit
def load_tokens(tokens, start, WINDOW: tl.constexpr):
    """Load `WINDOW` logits of a row's list, or of the whole row, and their ids; minus infinity past its end."""
    rows, row, listed, is_listed, length, _origin = tokens
    lane = start + tl.arange(0, WINDOW)
    mask = lane < length
    ids = tl.where(is_listed, tl.load(listed + lane, mask=mask & is_listed, other=0), lane)
    return load_ordered(rows, row, ids, mask), ids


@triton.jit
def rank_of(x, origin):
    """Return the rank of a token in the interval whose lower bound has the key `origin`; 0 for a masked lane."""
    return tl.where(x > float("-inf"), key_of(x) - origin, 0)


@triton.jit
def measured(x, origin, top, scale, BY_COUNT: tl.constexpr):
    """Return ranks and weights of tokens. Masked lanes have rank 0, which is below every trial."""
    return rank_of(x, origin), 1.0 if BY_COUNT else tl.where(x > float("-inf"), weight(x, top, scale), 0.0)


@triton.jit
def measure_from(ranked, trial):
    """Return the weight of the tokens with at least the rank `trial`."""
    rank, measure = ranked
    return tl.sum(tl.where(rank >= trial, measure, 0.0), axis=0)


@triton.jit
def largest_rank(first, tokens, most, floor, need, top, scale, BY_COUNT: tl.constexpr, WINDOW: tl.constexpr):
    """Return the largest rank, at least `floor`, whose tokens and later ones weigh `need`, and the weight above it.

    Return rank 0 if all tokens weigh less.

    Args:
        first: ranks and weights of the first tokens, which stay in registers. Usually there are no others.
        tokens: all of them.
        most: no token has a higher rank.
        floor: the rank of a token, or 0.
        need: weight.
        top: the row's maximum.
        scale: 1 / temperature.
        BY_COUNT: weights are 1.
        WINDOW: number of the first tokens.
    """
    shift = tl.full((), 30, tl.int32)
    while (shift > 0) & ((most >> shift.to(tl.uint32)) == 0):
        shift -= 2
    found = tl.zeros((), tl.uint32)
    above = tl.zeros((), tl.float32)
    while shift >= 0:
        width = tl.full((), 1, tl.uint32) << shift.to(tl.uint32)
        one, two, three = found + width, found + 2 * width, found + 3 * width
        from_one, from_two, from_three = measure_from(first, one), measure_from(first, two), measure_from(first, three)
        for start in range(WINDOW, tokens[4], WINDOW):
            x, _ids = load_tokens(tokens, start, WINDOW)
            more = measured(x, tokens[5], top, scale, BY_COUNT)
            from_one += measure_from(more, one)
            from_two += measure_from(more, two)
            from_three += measure_from(more, three)
        if (three <= floor) | (from_three >= need):
            found = three
        elif (two <= floor) | (from_two >= need):
            found = two
            above = from_three
        elif (one <= floor) | (from_one >= need):
            found = one
            above = from_two
        else:
            above = from_one
        shift -= 2
    return found, above


@triton.jit
def last_tie(ranks, tokens, rank, kept, WINDOW: tl.constexpr):
    """Return the id of the last of the `kept` first tokens of a rank, or a larger id if all are kept.

    `ranks` is those of the first ones. Ids increase.
    """
    ties = tl.sum((ranks == rank).to(tl.int32), axis=0)
    for start in range(WINDOW, tokens[4], WINDOW):
        x, _ids = load_tokens(tokens, start, WINDOW)
        ties += tl.sum((rank_of(x, tokens[5]) == rank).to(tl.int32), axis=0)
    last_id = tl.full((), ALL, tl.int32)
    if ties > kept:
        before = tl.zeros((), tl.int32)
        last_id = tl.full((), -1, tl.int32)
        for start in range(0, tokens[4], WINDOW):
            x, ids = load_tokens(tokens, start, WINDOW)
            is_tie = (rank_of(x, tokens[5]) == rank).to(tl.int32)
            stays = (is_tie > 0) & (before + tl.cumsum(is_tie, axis=0) <= kept)
            last_id = tl.maximum(last_id, tl.max(tl.where(stays, ids, -1), axis=0))
            before += tl.sum(is_tie, axis=0)
    return last_id


@triton.jit
def masses_that_stay(search, tokens, start, nth_logit, last_id, scale, WINDOW: tl.constexpr):
    """Return the weights, relative to their chunks, of those of `WINDOW` tokens that stay, and 0 for the others."""
    rows, row = tokens[0], tokens[1]
    x, ids = load_tokens(tokens, start, WINDOW)
    stays = ((x > nth_logit) | ((x == nth_logit) & (ids <= last_id))) & (x > float("-inf"))
    tops = tl.load(search.tops + row * rows.chunks + ids // CHUNK, mask=stays, other=0.0)
    return tl.where(stays, weight(x, tops, scale), 0.0)


@triton.jit
def store_sums(search, gathered, tokens, nth_logit, last_id, scale, has_k, WINDOW: tl.constexpr, PADDED: tl.constexpr):
    """Store the weights of the tokens that stay, by tile and by chunk; with top-k they are the pool of the row."""
    rows, row, listed, is_listed, length, _origin = tokens
    chunks = row * rows.chunks
    if is_listed:
        for start in range(0, length, WINDOW):
            mass = masses_that_stay(search, tokens, start, nth_logit, last_id, scale, WINDOW)
            tl.debug_barrier()  # no thread loads an id where another has stored a weight
            lane = start + tl.arange(0, WINDOW)
            tl.store(listed + lane, mass.to(tl.int32, bitcast=True), mask=lane < length)
        tl.debug_barrier()
        _words, counts = load_words(gathered, rows, row, PADDED)
        counts = tl.sum(tl.reshape(counts, (PADDED * TILES, TILE // BITS)), axis=1)
        first = tl.cumsum(counts, axis=0) - counts
        tile = tl.arange(0, PADDED * TILES)
        is_tile = tile < rows.chunks * TILES
        # Start with the weight above the interval, and add the tokens of it that stay.
        in_tile = tl.load(search.tiles + chunks * TILES + tile, mask=is_tile, other=0.0)
        for start in range(0, tl.max(counts, axis=0), COLUMNS):
            column = start + tl.arange(0, COLUMNS)[None, :]
            mass = tl.load(listed + first[:, None] + column, mask=column < counts[:, None], other=0)
            in_tile += tl.sum(mass.to(tl.float32, bitcast=True), axis=1)
        tl.debug_barrier()
        tl.store(search.tiles + chunks * TILES + tile, in_tile, mask=is_tile)
        tl.store(search.pool + chunks * TILES + tile, in_tile, mask=is_tile & has_k)
    else:
        for start in range(0, rows.chunks * CHUNK, WINDOW):
            mass = masses_that_stay(search, tokens, start, nth_logit, last_id, scale, WINDOW)
            tile = start // TILE + tl.arange(0, WINDOW // TILE)
            in_tile = tl.sum(tl.reshape(mass, (WINDOW // TILE, TILE)), axis=1)
            is_tile = tile < rows.chunks * TILES
            tl.store(search.tiles + chunks * TILES + tile, in_tile, mask=is_tile)
            tl.store(search.pool + chunks * TILES + tile, in_tile, mask=is_tile & has_k)
    tl.debug_barrier()
    chunk = tl.arange(0, PADDED)
    at = (chunks + chunk)[:, None] * TILES + tl.arange(0, TILES)[None, :]
    totals = tl.sum(tl.load(search.tiles + at, mask=(chunk < rows.chunks)[:, None], other=0.0), axis=1)
    tl.store(search.kept + chunks + chunk, totals, mask=chunk < rows.chunks)


@triton.jit
def select(thresholds, search, gathered, at, tokens, above, k, p, most, WINDOW: tl.constexpr, PADDED: tl.constexpr):
    """Find the threshold of a row with limits among `tokens`, and store it as that of row `at`.

    `above` is the weight of the tokens above these.
    """
    rows, row, origin = tokens[0], tokens[1], tokens[5]
    has_k = k < rows.vocabulary
    fields = search.state + row * FIELDS
    top = tl.load(fields + TOP)
    scale = scale_of_row(rows, row)
    x, _ids = load_tokens(tokens, 0, WINDOW)

    # Rank 0 is below every token's rank. It keeps all tokens, even if rounding leaves their weight below the target.
    nth = tl.zeros((), tl.uint32)
    kept = tl.full((), ALL, tl.int32)
    first = measured(x, origin, top, scale, rows.p is None)
    if rows.k is not None:  # noqa: SIM102 -- decided when the kernel is compiled
        if has_k:
            nth, more = largest_rank((first[0], 1.0), tokens, most, nth, k - above, top, scale, True, WINDOW)
            if nth > 0:
                kept = k - (above + more).to(tl.int32)
    if rows.p is not None:  # noqa: SIM102
        if p < 1.0:
            kth = nth
            target = p * tl.load(fields + TOTAL) - above
            if rows.k is not None:  # noqa: SIM102
                if has_k:
                    mass = measure_from(first, kth + 1)
                    for start in range(WINDOW, tokens[4], WINDOW):
                        more_x, _ids = load_tokens(tokens, start, WINDOW)
                        mass += measure_from(measured(more_x, origin, top, scale, False), kth + 1)
                    if kth > 0:
                        mass += kept.to(tl.float32) * weight(value_of(origin + kth), top, scale)
                    target = p * mass
            # A minimum above zero keeps the first token.
            target = tl.maximum(target, 1e-30)
            nth, more = largest_rank(first, tokens, most, kth, target, top, scale, False, WINDOW)
            if nth > 0:
                ties = (target - more) / tl.maximum(weight(value_of(origin + nth), top, scale), 1e-30)
                ties = tl.minimum(tl.maximum(tl.ceil(ties), 1.0), 1e9).to(tl.int32)
                kept = tl.where(nth == kth, tl.minimum(ties, kept), ties)
    last_id = last_tie(first[0], tokens, nth, kept, WINDOW)
    # Rank 0 means no token: drop logits at or below the lower bound.
    last_id = tl.where(nth > 0, last_id, -1)
    nth_logit = value_of(origin + nth)
    tl.store(thresholds.nth_logit + at, nth_logit)
    tl.store(thresholds.last_id + at, last_id)
    if search.tiles is not None:
        store_sums(search, gathered, tokens, nth_logit, last_id, scale, has_k, WINDOW, PADDED)


@triton.jit
def select_row(thresholds, search, gathered, rows, row, k, p, WINDOW: tl.constexpr, PADDED: tl.constexpr):
    """Find the threshold of a row with limits: in its interval if that contains it, else in the whole row."""
    has_k = k < rows.vocabulary
    fields = search.state + row * FIELDS
    top = tl.load(fields + TOP)
    low = tl.load(fields + LOW)
    scale = scale_of_row(rows, row)
    lane = tl.arange(0, PADDED)
    is_chunk = lane < rows.chunks
    chunk = row * rows.chunks + lane
    tops = tl.load(search.tops + chunk, mask=is_chunk, other=float("-inf"))
    share = tl.where(has_k, 1.0, weight(tops, top, scale))
    above = tl.sum(tl.load(search.above + chunk, mask=is_chunk, other=0.0) * share, axis=0)
    within = tl.sum(tl.load(search.within + chunk, mask=is_chunk, other=0.0) * share, axis=0)
    need = k.to(tl.float32)
    if rows.p is not None:
        need = tl.where(has_k, need, tl.maximum(p * tl.load(fields + TOTAL), 1e-30))
    is_wrong = (above >= need) | ((above + within < need) & (low > float("-inf")))
    listed = gathered.listed + tl.program_id(0).to(tl.int64) * (PADDED * LISTED)
    length = list_tokens(listed, gathered, rows, row, PADDED)
    is_listed = (not is_wrong) & (length <= PADDED * LISTED)
    length = tl.where(is_listed, length, rows.vocabulary)
    above = tl.where(is_listed, above, 0.0)
    low = tl.where(is_listed, low, float("-inf"))
    origin = key_of(low)
    most = key_of(tl.where(is_listed, tl.load(fields + HIGH), top)) - origin
    tokens = (rows, row, listed, is_listed, length, origin)
    at = target_of(rows, row)
    if length <= NARROW:
        select(thresholds, search, gathered, at, tokens, above, k, p, most, NARROW, PADDED)
    elif length <= WINDOW // 2:
        select(thresholds, search, gathered, at, tokens, above, k, p, most, WINDOW // 2, PADDED)
    else:
        select(thresholds, search, gathered, at, tokens, above, k, p, most, WINDOW, PADDED)


@triton.jit
def _select_kernel(thresholds, search, gathered, rows, WINDOW: tl.constexpr, PADDED: tl.constexpr):
    n = tl.program_id(0)
    row = needed_row(search, n)
    while row >= 0:
        k, p = limits(rows, row)
        select_row(thresholds, search, gathered, rows, row, k, p, WINDOW, PADDED)
        n += tl.num_programs(0)
        row = needed_row(search, n)


def make_thresholds(count: int, device: Any) -> Thresholds:
    """Allocate the thresholds of `count` rows of logits."""
    numbers = torch.empty((2, count), dtype=torch.int32, device=device)
    return Thresholds(numbers[0].view(torch.float32), numbers[1])


def find_thresholds(
    search: Search, thresholds: Thresholds, gathered: Gathered, rows: KeyRows, count: int
) -> Thresholds:
    """Find the thresholds of rows, by row of logits, and return them.

    Args:
        search: results of a survey of the rows. With tiles the weights of the tokens that stay take their place.
        thresholds: memory for the thresholds.
        gathered: memory for the tokens of the intervals.
        rows: the rows and their limits.
        count: number of rows, of which about one per request needs a threshold.
    """
    guess_intervals(thresholds, search, rows, count)
    programs = search_programs(count)
    gather_intervals(gathered, search, rows, programs)
    warps = WARPS if rows.p is not None else WARPS // 2
    registers = REGISTERS if count // (rows.columns or 1) > MULTIPROCESSORS else 255
    options = {"WINDOW": warps * WINDOW, "PADDED": triton.next_power_of_2(rows.chunks), "num_warps": warps}
    launch(_select_kernel, (programs,), thresholds, search, gathered, rows, **options, maxnreg=registers)
    return thresholds

"""Threshold search: for each row, a small interval (low, high] of logits that contains the top-k or top-p threshold.

The threshold is the largest logit t such that the tokens with logits >= t number at least k, or have at least the
probability p. Both are a weight: 1 per token under top-k, exp(logit - max) under top-p. Rows are split into chunks, one
program each, so that few rows still fill the device.

1. sample: guess three pivots around the threshold from 4096 logits of the row.
2. measure: add up the weight above each pivot, chunk by chunk. The first round also stores the maximum of each group of
64 tokens, so that later passes skip groups below the interval.
3. decide: keep the two pivots around the threshold, and place the next pivots between them.

Measure and decide run three times under top-p and once without; the programs of a finished row return at once. Pivots
only affect speed: for any pivots the interval contains the threshold, because it starts as (-inf, max] and only
measured weights shrink it.

A row with at most as many tokens to keep as it has groups needs no pivots: at least k tokens are as large as the k-th
largest maximum of a group.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ._logit_keys import KeyRows, key_of, limits, load_ordered, scale_of_row, value_of, weight
from ._logits import nan_as_lowest

CHUNK: tl.constexpr = tl.constexpr(4096)
GROUP: tl.constexpr = tl.constexpr(64)
GROUPS: tl.constexpr = tl.constexpr(CHUNK.value // GROUP.value)
ROUNDS = 3
PROGRAMS = 2048
"""Programs that fill a device; more of them cost more to launch than rows that are done."""
PIVOTS: tl.constexpr = tl.constexpr(4)
"""Pivots per round; pivot 0 is the current lower bound."""
FEW: tl.constexpr = tl.constexpr(4096)
"""An interval with at most this many tokens needs no further round."""
REACH: tl.constexpr = tl.constexpr(32.0)
"""Maximum distance, at temperature 1, of the next pivots below the upper bound; lower logits weigh less than e^-32."""
SAMPLE: tl.constexpr = tl.constexpr(4096)

FIELDS: tl.constexpr = tl.constexpr(8)
"""State of a row: maximum, total weight, interval, weight above it, and a flag that ends its search."""
TOP: tl.constexpr = tl.constexpr(0)
TOTAL: tl.constexpr = tl.constexpr(1)
LOW: tl.constexpr = tl.constexpr(2)
HIGH: tl.constexpr = tl.constexpr(3)
ABOVE: tl.constexpr = tl.constexpr(4)
DONE: tl.constexpr = tl.constexpr(5)


class Search(NamedTuple):
    """Scratch for the state of every row between rounds, on the device of the logits."""

    state: Any
    pivots: Any
    tops: Any
    """Maximum of each chunk."""
    maxima: Any
    """Maximum of each group."""
    measures: Any
    """Weight above each pivot, per chunk."""


@triton.jit
def is_direct(rows, k):
    """Return True if the maxima of the groups bound the threshold of top-k."""
    return k <= rows.vocabulary // GROUP


@triton.jit
def load_groups(maxima, at):
    """Return the maxima of the groups of chunk `at` as a column; chunks are numbered across rows."""
    return tl.load(maxima + at * GROUPS + tl.arange(0, GROUPS)[:, None])


@triton.jit
def chunk_ids(chunk):
    """Return the ids of a chunk, one row per group."""
    return chunk * CHUNK + tl.arange(0, GROUPS)[:, None] * GROUP + tl.arange(0, GROUP)[None, :]


@triton.jit
def _sample_kernel(search, rows):
    row = tl.program_id(0).to(tl.int64)
    k, p = limits(rows, row)
    has_k = k < rows.vocabulary
    fields = search.state + row * FIELDS
    tl.store(fields + DONE, tl.where(has_k | (p < 1.0), 0.0, 1.0))
    if (not has_k) & (p >= 1.0):
        return
    tl.store(fields + HIGH, float("inf"))
    tl.store(fields + ABOVE, 0.0)
    if is_direct(rows, k):
        return

    scale = scale_of_row(rows, row)
    # Sample runs of 32 adjacent logits, evenly spread over the row.
    lane = tl.arange(0, SAMPLE)
    ids = lane // 32 * (tl.maximum(rows.vocabulary // SAMPLE, 1) * 32) + lane % 32
    mask = ids < rows.vocabulary
    x = load_ordered(rows, row, ids, mask)
    top = tl.max(x, axis=0)
    w = tl.where(x > float("-inf"), tl.where(has_k, 1.0, weight(x, top, scale)), 0.0)
    whole = tl.where(has_k, tl.sum(mask.to(tl.float32), axis=0), tl.sum(w, axis=0))
    share = tl.where(has_k, k.to(tl.float32) / rows.vocabulary, p)
    # Bracket the expected weight by three standard deviations; two more tokens cover the smallest shares.
    spread = 3.0 * tl.sqrt(share * (1.0 - share) * tl.sum(w * w, axis=0)) + 2.0
    least = tl.maximum(share * whole - spread, 1e-30)
    most = tl.minimum(share * whole + spread, (1.0 - (1.0 - share) * 0.125) * whole)
    # Sort key: bits of the distance to the row maximum (shift-invariant). A larger key is a larger logit.
    key = 0x7F800000 - tl.where(x == top, 0.0, top - x).to(tl.int32, bitcast=True)
    # Radix search for both ends of the guess, four columns each. Every pass fixes two bits of the key, the exponent and
    # six more bits in total.
    column = tl.arange(0, 8)
    is_high = column < 4
    digit = column % 4
    need = tl.where(is_high, least, most)
    found = tl.zeros((8,), tl.int32)
    for i in range(7):
        trial = found | (digit << (29 - 2 * i))
        measure = tl.sum(tl.where(key[:, None] >= trial[None, :], w[:, None], 0.0), axis=0)
        held = tl.where((measure >= need) | (digit == 0), trial, 0)
        found = tl.where(is_high, tl.max(tl.where(is_high, held, 0)), tl.max(tl.where(is_high, 0, held)))
    # Infinity minus infinity is NaN here and means a logit of minus infinity.
    guess = nan_as_lowest(top - (0x7F800000 - found).to(tl.float32, bitcast=True))
    high = tl.max(tl.where(is_high, guess, float("-inf")), axis=0)
    low = tl.max(tl.where(is_high, float("-inf"), guess), axis=0)
    store_pivots(search.pivots + row * PIVOTS, float("-inf"), low, high, PIVOTS - 2)


@triton.jit
def store_pivots(pivots, bound, low, high, parts):
    """Store the bound as pivot 0, and pivots that divide the range from `low` to `high` into parts."""
    i = tl.arange(0, PIVOTS)
    share = (i - 1).to(tl.float32) / parts
    # Interpolate without the difference, which may overflow.
    pivot = low * (1.0 - share) + tl.minimum(high, 3.0e38) * share
    pivot = tl.where(low > float("-inf"), pivot, float("-inf"))
    tl.store(pivots + i, tl.where(i == 0, bound, pivot))


@triton.jit
def measure(search, rows, row, chunk, k, FIRST: tl.constexpr):
    """Store the weight of one chunk above each pivot; in the first round also the maxima of its groups."""
    pivots = search.pivots + row * PIVOTS
    at = row * rows.chunks + chunk
    ids = chunk_ids(chunk)
    mask = ids < rows.vocabulary
    if not FIRST:
        mask = mask & (load_groups(search.maxima, at) > tl.load(pivots))
    x = load_ordered(rows, row, ids, mask)
    if FIRST:
        group_tops = tl.max(x, axis=1)
        tl.store(search.maxima + at * GROUPS + tl.arange(0, GROUPS), group_tops)
        top = tl.max(group_tops, axis=0)
        tl.store(search.tops + at, top)
    else:
        top = tl.load(search.tops + at)
    if not is_direct(rows, k):
        w = tl.full(x.shape, 1.0, tl.float32)
        if rows.p is not None:
            w = tl.where(k < rows.vocabulary, w, weight(x, top, scale_of_row(rows, row)))
        for i in tl.static_range(PIVOTS):
            is_above = x > tl.load(pivots + i)
            tl.store(search.measures + at * PIVOTS + i, tl.sum(tl.where(is_above, w, 0.0)))


@triton.jit
def _measure_kernel(search, rows, FIRST: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    if tl.load(search.state + row * FIELDS + DONE) != 0.0:
        return
    k, _p = limits(rows, row)
    if FIRST:
        measure(search, rows, row, tl.program_id(1), k, FIRST)
    else:
        for chunk in range(tl.program_id(1), rows.chunks, tl.num_programs(1)):
            measure(search, rows, row, chunk, k, FIRST)


@triton.jit
def bound_of_maxima(search, rows, row, k, PADDED: tl.constexpr):
    """Return the maximum of the row, and a number just below the k-th largest maximum of a group."""
    lane = tl.arange(0, PADDED * GROUPS)
    maxima = search.maxima + row * rows.chunks * GROUPS
    maximum = tl.load(maxima + lane, mask=lane < rows.chunks * GROUPS, other=float("-inf"))
    key = tl.where(lane < rows.chunks * GROUPS, key_of(maximum), 0)
    digit = tl.arange(0, 4).to(tl.uint32)
    found = tl.zeros((), tl.uint32)
    # The upper half of a key is close enough.
    for i in tl.static_range(8):
        trial = found | (digit << (30 - 2 * i))
        count = tl.sum((key[:, None] >= trial[None, :]).to(tl.int32), axis=0)
        found = tl.max(tl.where(count >= k, trial, found), axis=0)
    # Far enough below also beside zero; infinity minus infinity gives minus infinity.
    bound = value_of(found)
    return tl.max(maximum, axis=0), nan_as_lowest(bound - tl.abs(bound) * 1e-6 - 1e-30)


@triton.jit
def _decide_kernel(search, rows, FIRST: tl.constexpr, PADDED: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    fields = search.state + row * FIELDS
    if tl.load(fields + DONE) != 0.0:
        return
    k, p = limits(rows, row)
    has_k = k < rows.vocabulary
    if FIRST:  # noqa: SIM102 -- decided when the kernel is compiled
        if rows.k is not None:  # noqa: SIM102
            if is_direct(rows, k):
                top, low = bound_of_maxima(search, rows, row, k, PADDED)
                tl.store(fields + TOP, top)
                tl.store(fields + LOW, low)
                tl.store(fields + DONE, 1.0)
                return
    scale = scale_of_row(rows, row)
    lane = tl.arange(0, PADDED)
    is_chunk = lane < rows.chunks
    i = tl.arange(0, PIVOTS)
    at = (row * rows.chunks + lane[:, None]) * PIVOTS + i[None, :]
    measure = tl.load(search.measures + at, mask=is_chunk[:, None], other=0.0)
    chunk_tops = tl.load(search.tops + row * rows.chunks + lane, mask=is_chunk, other=float("-inf"))
    top = tl.max(chunk_tops, axis=0)
    # Rescale each chunk's weight from its own maximum to the row's.
    measure = tl.sum(measure * tl.where(has_k, 1.0, weight(chunk_tops, top, scale))[:, None], axis=0)
    if FIRST:
        total = tl.sum(tl.where(i == 0, measure, 0.0), axis=0)
        tl.store(fields + TOTAL, total)
        tl.store(fields + TOP, top)
    else:
        total = tl.load(fields + TOTAL)
    # A minimum above zero keeps the first token for every p.
    need = tl.where(has_k, k.to(tl.float32), tl.maximum(p * total, 1e-30))
    pivot = tl.load(search.pivots + row * PIVOTS + i)
    best = tl.max(tl.where(measure >= need, i, 0), axis=0)
    low = tl.max(tl.where(i == best, pivot, float("-inf")), axis=0)
    high = tl.minimum(tl.load(fields + HIGH), top)
    above = tl.load(fields + ABOVE)
    if best < PIVOTS - 1:
        high = tl.max(tl.where(i == best + 1, pivot, float("-inf")), axis=0)
        above = tl.sum(tl.where(i == best + 1, measure, 0.0), axis=0)
    tl.store(fields + LOW, low)
    tl.store(fields + HIGH, high)
    tl.store(fields + ABOVE, above)
    # No token in the interval weighs less than one at its lower bound, so that this bounds their number.
    least = tl.where(has_k, 1.0, weight(low, top, scale))
    is_few = tl.sum(tl.where(i == best, measure, 0.0), axis=0) - above <= least * FEW
    tl.store(fields + DONE, (is_few | (low >= high)).to(tl.float32))
    high = tl.minimum(high, 3.0e38)
    start = tl.maximum(low, high - REACH / scale)
    store_pivots(search.pivots + row * PIVOTS, low, start + (high - start) / PIVOTS, high, PIVOTS - 1)


def programs_per_row(rows: KeyRows, count: int) -> int:
    """Return the programs among which the chunks of a row are shared where most of them have little to do."""
    chunks: int = rows.chunks
    return max(1, min(chunks, PROGRAMS // count))


def find_intervals(rows: KeyRows, count: int) -> Search:
    """Search `count` rows. The state of a row without limits is undefined."""

    def scratch(*shape: int) -> Any:
        return torch.empty((count, *shape), dtype=torch.float32, device=rows.logits.device)

    search = Search(
        state=scratch(FIELDS.value),
        pivots=scratch(PIVOTS.value),
        tops=scratch(rows.chunks),
        maxima=scratch(rows.chunks, GROUPS.value),
        measures=scratch(rows.chunks, PIVOTS.value),
    )
    padded = triton.next_power_of_2(rows.chunks)
    _sample_kernel[(count,)](search, rows, num_warps=8)
    # An interval of top-k is small after one round: pivots count tokens, of which a sample knows the share.
    for i in range(1 if rows.p is None else ROUNDS):
        parts = rows.chunks if i == 0 else programs_per_row(rows, count)
        _measure_kernel[(count, parts)](search, rows, FIRST=i == 0, num_warps=4)
        _decide_kernel[(count,)](search, rows, FIRST=i == 0, PADDED=padded, num_warps=4 if i == 0 else 1)
    return search

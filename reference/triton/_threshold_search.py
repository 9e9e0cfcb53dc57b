"""Threshold search: for each row, a small interval (low, high] of logits that contains the top-k or top-p threshold.

The threshold is the largest logit t such that the tokens with logits >= t number at least k, or have at least the
probability p. Both are a weight: 1 per token under top-k, exp(logit - max) under top-p. Rows are split into chunks, one
program each, so that few rows still fill the device.

1. survey: read each chunk once for its weight, and for the maximum of each group of 64 tokens; later passes skip groups
below the interval.
2. guess: three pivots around the threshold (``_threshold_guess``).
3. measure: add up the weight above each pivot, chunk by chunk.
4. decide: keep the two pivots around the threshold, and place the next pivots between them.

Measure and decide run twice under top-p and once without; the programs of a finished row return at once. Pivots only
affect speed: for any pivots the interval contains the threshold, because it starts as (-inf, max] and only measured
weights shrink it.

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
from ._threshold_guess import REACH, guess_by_count, guess_by_mass, load_sample

CHUNK: tl.constexpr = tl.constexpr(4096)
GROUP: tl.constexpr = tl.constexpr(64)
GROUPS: tl.constexpr = tl.constexpr(CHUNK.value // GROUP.value)
ROUNDS = 2
PROGRAMS = 2048
"""Programs that fill a device; more of them cost more to launch than rows that are done."""
LANES: tl.constexpr = tl.constexpr(4)
PIVOTS: tl.constexpr = tl.constexpr(3)
"""Pivots per round, in ascending order; the last lane of a row's pivots is not used."""
FEW: tl.constexpr = tl.constexpr(4096)
"""An interval with at most this many tokens needs no further round."""
FIELDS: tl.constexpr = tl.constexpr(8)
"""State of a row: maximum, total weight, interval, weights above its two bounds, and a flag that ends its search."""
TOP: tl.constexpr = tl.constexpr(0)
TOTAL: tl.constexpr = tl.constexpr(1)
LOW: tl.constexpr = tl.constexpr(2)
HIGH: tl.constexpr = tl.constexpr(3)
ABOVE: tl.constexpr = tl.constexpr(4)
DONE: tl.constexpr = tl.constexpr(5)
HELD: tl.constexpr = tl.constexpr(6)


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
def _survey_kernel(search, rows):
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    k, p = limits(rows, row)
    has_k = k < rows.vocabulary
    if (not has_k) & (p >= 1.0):
        return
    at = row * rows.chunks + chunk
    ids = chunk_ids(chunk)
    x = load_ordered(rows, row, ids, ids < rows.vocabulary)
    group_tops = tl.max(x, axis=1)
    tl.store(search.maxima + at * GROUPS + tl.arange(0, GROUPS), group_tops)
    top = tl.max(group_tops, axis=0)
    tl.store(search.tops + at, top)
    if rows.p is not None:  # noqa: SIM102 -- decided when the kernel is compiled
        if not has_k:
            weights = tl.where(x > float("-inf"), weight(x, top, scale_of_row(rows, row)), 0.0)
            tl.store(search.measures + at * LANES, tl.sum(weights))


@triton.jit
def bound_of_maxima(search, rows, row, k, PADDED: tl.constexpr):
    """Return a number just below the k-th largest maximum of a group."""
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
    return nan_as_lowest(bound - tl.abs(bound) * 1e-6 - 1e-30)


@triton.jit
def _guess_kernel(search, rows, PADDED: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    k, p = limits(rows, row)
    has_k = k < rows.vocabulary
    fields = search.state + row * FIELDS
    tl.store(fields + DONE, tl.where(has_k | (p < 1.0), 0.0, 1.0))
    if (not has_k) & (p >= 1.0):
        return
    lane = tl.arange(0, PADDED)
    tops = tl.load(search.tops + row * rows.chunks + lane, mask=lane < rows.chunks, other=float("-inf"))
    top = tl.max(tops, axis=0)
    tl.store(fields + TOP, top)
    tl.store(fields + LOW, float("-inf"))
    tl.store(fields + HIGH, top)
    tl.store(fields + ABOVE, 0.0)
    if rows.k is not None:  # noqa: SIM102 -- decided when the kernel is compiled
        if has_k:
            if is_direct(rows, k):
                tl.store(fields + LOW, bound_of_maxima(search, rows, row, k, PADDED))
                tl.store(fields + DONE, 1.0)
            else:
                x, mask = load_sample(rows, row)
                low, high = guess_by_count(x, mask, k, rows.vocabulary)
                tl.store(fields + HELD, rows.vocabulary + tl.zeros((), tl.float32))
                store_pivots(search.pivots + row * LANES, low, low + (high - low) * 0.5, high)
    if rows.p is not None:  # noqa: SIM102
        if not has_k:
            scale = scale_of_row(rows, row)
            at = (row * rows.chunks + lane) * LANES
            totals = tl.load(search.measures + at, mask=lane < rows.chunks, other=0.0)
            total = tl.sum(totals * weight(tops, top, scale), axis=0)
            tl.store(fields + TOTAL, total)
            tl.store(fields + HELD, total)
            x, mask = load_sample(rows, row)
            low, middle, high = guess_by_mass(x, mask, top, total, scale, p, rows.vocabulary)
            store_pivots(search.pivots + row * LANES, low, middle, high)


@triton.jit
def store_pivots(pivots, low, middle, high):
    """Store three pivots. A pivot that is no number becomes minus infinity, which shrinks no interval."""
    i = tl.arange(0, LANES)
    pivot = tl.where(i == 0, low, tl.where(i == 1, middle, tl.where(i == 2, high, float("inf"))))
    tl.store(pivots + i, nan_as_lowest(pivot))


@triton.jit
def measure(search, rows, row, chunk, k):
    """Store the weight of one chunk above each pivot."""
    at = row * rows.chunks + chunk
    ids = chunk_ids(chunk)
    near = load_groups(search.maxima, at) > tl.load(search.state + row * FIELDS + LOW)
    x = load_ordered(rows, row, ids, (ids < rows.vocabulary) & near)
    w = tl.full(x.shape, 1.0, tl.float32)
    if rows.p is not None:
        w = tl.where(k < rows.vocabulary, w, weight(x, tl.load(search.tops + at), scale_of_row(rows, row)))
    for i in tl.static_range(PIVOTS):
        is_above = x > tl.load(search.pivots + row * LANES + i)
        tl.store(search.measures + at * LANES + i, tl.sum(tl.where(is_above, w, 0.0)))


@triton.jit
def _measure_kernel(search, rows):
    row = tl.program_id(0).to(tl.int64)
    if tl.load(search.state + row * FIELDS + DONE) != 0.0:
        return
    k, _p = limits(rows, row)
    for chunk in range(tl.program_id(1), rows.chunks, tl.num_programs(1)):
        measure(search, rows, row, chunk, k)


@triton.jit
def _decide_kernel(search, rows, PADDED: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    fields = search.state + row * FIELDS
    if tl.load(fields + DONE) != 0.0:
        return
    k, p = limits(rows, row)
    has_k = k < rows.vocabulary
    scale = scale_of_row(rows, row)
    lane = tl.arange(0, PADDED)
    is_chunk = lane < rows.chunks
    i = tl.arange(0, LANES)
    at = (row * rows.chunks + lane[:, None]) * LANES + i[None, :]
    measure = tl.load(search.measures + at, mask=is_chunk[:, None] & (i < PIVOTS)[None, :], other=0.0)
    tops = tl.load(search.tops + row * rows.chunks + lane, mask=is_chunk, other=float("-inf"))
    top = tl.load(fields + TOP)
    # Rescale each chunk's weight from its own maximum to the row's.
    measure = tl.sum(measure * tl.where(has_k, 1.0, weight(tops, top, scale))[:, None], axis=0)
    # A minimum above zero keeps the first token for every p.
    need = tl.where(has_k, k.to(tl.float32), tl.maximum(p * tl.load(fields + TOTAL), 1e-30))
    pivot = tl.load(search.pivots + row * LANES + i)
    low = tl.load(fields + LOW)
    high = tl.load(fields + HIGH)
    # Only pivots inside the interval count; rounding must not move a bound back.
    holds = (measure >= need) & (pivot > low) & (i < PIVOTS)
    fails = (measure < need) & (pivot > low) & (pivot < high) & (i < PIVOTS)
    held = tl.load(fields + HELD)
    above = tl.load(fields + ABOVE)
    best = tl.max(tl.where(holds, i, -1), axis=0)
    if best >= 0:
        low = tl.max(tl.where(i == best, pivot, float("-inf")), axis=0)
        held = tl.sum(tl.where(i == best, measure, 0.0), axis=0)
    after = tl.min(tl.where(fails & (i > best), i, LANES), axis=0)
    if after < LANES:
        high = tl.max(tl.where(i == after, pivot, float("-inf")), axis=0)
        above = tl.sum(tl.where(i == after, measure, 0.0), axis=0)
    tl.store(fields + LOW, low)
    tl.store(fields + HIGH, high)
    tl.store(fields + HELD, held)
    tl.store(fields + ABOVE, above)
    # No token in the interval weighs less than one at its lower bound, so that this bounds their number.
    least = tl.where(has_k, 1.0, weight(low, top, scale))
    tl.store(fields + DONE, ((held - above <= least * FEW) | (low >= high)).to(tl.float32))
    # Interpolate without the difference, which may overflow.
    high = tl.minimum(high, 3.0e38)
    start = tl.maximum(low, high - REACH / scale)
    middle = start * 0.5 + high * 0.5
    store_pivots(search.pivots + row * LANES, start * 0.75 + high * 0.25, middle, start * 0.25 + high * 0.75)


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
        pivots=scratch(LANES.value),
        tops=scratch(rows.chunks),
        maxima=scratch(rows.chunks, GROUPS.value),
        measures=scratch(rows.chunks, LANES.value),
    )
    padded = triton.next_power_of_2(rows.chunks)
    _survey_kernel[(count, rows.chunks)](search, rows, num_warps=4)
    _guess_kernel[(count,)](search, rows, PADDED=padded, num_warps=4 if rows.p is None else 8)
    # An interval of top-k is small after one round: pivots count tokens, of which a sample knows the share.
    for i in range(1 if rows.p is None else ROUNDS):
        parts = rows.chunks if i == 0 and rows.p is not None else programs_per_row(rows, count)
        _measure_kernel[(count, parts)](search, rows, num_warps=4)
        _decide_kernel[(count,)](search, rows, PADDED=padded, num_warps=1)
    return search

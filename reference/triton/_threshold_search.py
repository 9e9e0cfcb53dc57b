"""For each row an interval (low, high] of logits that holds the answer of top-k or top-p, and few tokens.

The measure of a set of tokens is their number where a row has a top-k, else their probability mass; the
answer is the largest logit such that the tokens from it on measure at least k, or p of the whole. KeyRows are
cut into chunks, a program each, so that few rows still fill the device:

1. sample: a first guess of three pivots around the answer, from a part of the row.
2. measure: what lies above each pivot, chunk by chunk. The first time also the maximum of each group of 64
   tokens: whoever reads the row later leaves out the groups that cannot matter.
3. decide: the two pivots between which the answer lies, and the next pivots between these.

Measure and decide run three times; a row that is done lets its programs return at once. Pivots only decide
how fast a row is: any pivots give an interval that is right.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ._logit_keys import KeyRows, load_ordered, rules, weight
from ._logits import nan_as_lowest

CHUNK: tl.constexpr = tl.constexpr(4096)
GROUP: tl.constexpr = tl.constexpr(64)
GROUPS: tl.constexpr = tl.constexpr(CHUNK.value // GROUP.value)
ROUNDS = 3
PIVOTS: tl.constexpr = tl.constexpr(4)
"""Pivot 0 is the lower bound known so far."""
FEW: tl.constexpr = tl.constexpr(4096)
"""Tokens that are not worth another round."""
REACH: tl.constexpr = tl.constexpr(32.0)
"""The next pivots are at most this far below the upper bound: what lies lower holds no mass to speak of."""
SAMPLE: tl.constexpr = tl.constexpr(4096)

FIELDS: tl.constexpr = tl.constexpr(8)
"""A row's state: its maximum and measure, the interval, what lies above it, and whether the search is over."""
TOP: tl.constexpr = tl.constexpr(0)
TOTAL: tl.constexpr = tl.constexpr(1)
LOW: tl.constexpr = tl.constexpr(2)
HIGH: tl.constexpr = tl.constexpr(3)
ABOVE: tl.constexpr = tl.constexpr(4)
DONE: tl.constexpr = tl.constexpr(5)


class Search(NamedTuple):
    """What the rounds leave of each row, as scratch on the device of the logits."""

    state: Any
    pivots: Any
    tops: Any
    """The maxima of its chunks,"""
    maxima: Any
    """of its groups,"""
    measures: Any
    """and what lies in a chunk above each pivot."""


@triton.jit
def load_groups(maxima, at):
    """The maxima of the groups of a chunk, which is chunk `at` of all rows', as a column."""
    return tl.load(maxima + at * GROUPS + tl.arange(0, GROUPS)[:, None])


@triton.jit
def chunk_ids(chunk):
    """The ids of a chunk, a row for each group."""
    return chunk * CHUNK + tl.arange(0, GROUPS)[:, None] * GROUP + tl.arange(0, GROUP)[None, :]


@triton.jit
def _sample_kernel(search, rows):
    row = tl.program_id(0).to(tl.int64)
    k, p = rules(rows, row)
    has_k = k < rows.vocabulary
    fields = search.state + row * FIELDS
    tl.store(fields + DONE, tl.where(has_k | (p < 1.0), 0.0, 1.0))
    if (not has_k) & (p >= 1.0):
        return
    tl.store(fields + HIGH, float("inf"))
    tl.store(fields + ABOVE, 0.0)

    # Runs of 32 neighbours, evenly spread.
    lane = tl.arange(0, SAMPLE)
    ids = lane // 32 * (tl.maximum(rows.vocabulary // SAMPLE, 1) * 32) + lane % 32
    mask = ids < rows.vocabulary
    x = load_ordered(rows, row, ids, mask)
    top = tl.max(x, axis=0)
    w = tl.where(x > float("-inf"), tl.where(has_k, 1.0, weight(x, top)), 0.0)
    whole = tl.where(has_k, tl.sum(mask.to(tl.float32), axis=0), tl.sum(w, axis=0))
    share = tl.where(has_k, k.to(tl.float32) / rows.vocabulary, p)
    # Three standard deviations to each side, and two tokens for the smallest shares.
    spread = 3.0 * tl.sqrt(share * (1.0 - share) * tl.sum(w * w, axis=0)) + 2.0
    least = tl.maximum(share * whole - spread, 1e-30)
    most = tl.minimum(share * whole + spread, (1.0 - (1.0 - share) * 0.125) * whole)
    # What logits lack to the maximum, so that an offset of all changes nothing: the less, the larger the key.
    key = 0x7F800000 - tl.where(x == top, 0.0, top - x).to(tl.int32, bitcast=True)
    # Four columns look for either end of the guess: a digit of two bits a pass, exponent and six bits more.
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
    # Infinity less infinity stands for a logit of minus infinity.
    guess = nan_as_lowest(top - (0x7F800000 - found).to(tl.float32, bitcast=True))
    high = tl.max(tl.where(is_high, guess, float("-inf")), axis=0)
    low = tl.max(tl.where(is_high, float("-inf"), guess), axis=0)
    store_pivots(search.pivots + row * PIVOTS, float("-inf"), low, high, PIVOTS - 2)


@triton.jit
def store_pivots(pivots, bound, low, high, parts):
    """Pivot 0 is the bound; the others cut the range from `low` on into parts."""
    i = tl.arange(0, PIVOTS)
    share = (i - 1).to(tl.float32) / parts
    # Without a difference, which may overflow.
    pivot = low * (1.0 - share) + tl.minimum(high, 3.0e38) * share
    pivot = tl.where(low > float("-inf"), pivot, float("-inf"))
    tl.store(pivots + i, tl.where(i == 0, bound, pivot))


@triton.jit
def _measure_kernel(search, rows, FIRST: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    if tl.load(search.state + row * FIELDS + DONE) != 0.0:
        return
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
    w = tl.full(x.shape, 1.0, tl.float32)
    if rows.p is not None:
        k, _p = rules(rows, row)
        w = tl.where(k < rows.vocabulary, w, weight(x, top))
    for i in tl.static_range(PIVOTS):
        is_above = x > tl.load(pivots + i)
        tl.store(search.measures + at * PIVOTS + i, tl.sum(tl.where(is_above, w, 0.0)))


@triton.jit
def _decide_kernel(search, rows, FIRST: tl.constexpr, PADDED: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    fields = search.state + row * FIELDS
    if tl.load(fields + DONE) != 0.0:
        return
    k, p = rules(rows, row)
    has_k = k < rows.vocabulary
    lane = tl.arange(0, PADDED)
    is_chunk = lane < rows.chunks
    i = tl.arange(0, PIVOTS)
    at = (row * rows.chunks + lane[:, None]) * PIVOTS + i[None, :]
    measure = tl.load(search.measures + at, mask=is_chunk[:, None], other=0.0)
    chunk_tops = tl.load(search.tops + row * rows.chunks + lane, mask=is_chunk, other=float("-inf"))
    top = tl.max(chunk_tops, axis=0)
    # A chunk's mass is relative to its own maximum.
    measure = tl.sum(measure * tl.where(has_k, 1.0, weight(chunk_tops, top))[:, None], axis=0)
    if FIRST:
        total = tl.sum(tl.where(i == 0, measure, 0.0), axis=0)
        tl.store(fields + TOTAL, total)
        tl.store(fields + TOP, top)
    else:
        total = tl.load(fields + TOTAL)
    # The smallest number stands for zero: the first token is always part of the answer.
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
    # No token of the interval measures less than one at its lower bound.
    least = tl.where(has_k, 1.0, weight(low, top))
    is_few = tl.sum(tl.where(i == best, measure, 0.0), axis=0) - above <= least * FEW
    tl.store(fields + DONE, (is_few | (low >= high)).to(tl.float32))
    high = tl.minimum(high, 3.0e38)
    start = tl.maximum(low, high - REACH)
    store_pivots(search.pivots + row * PIVOTS, low, start + (high - start) / PIVOTS, high, PIVOTS - 1)


def find_intervals(rows: KeyRows) -> Search:
    """Search every row; the state of a row without a rule holds nothing."""
    count = rows.logits.shape[0]

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
    for i in range(ROUNDS):
        _measure_kernel[(count, rows.chunks)](search, rows, FIRST=i == 0, num_warps=4)
        _decide_kernel[(count,)](search, rows, FIRST=i == 0, PADDED=padded, num_warps=1)
    return search

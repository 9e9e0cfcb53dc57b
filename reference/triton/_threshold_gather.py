"""The second step of ``_thresholds``: gather the tokens of each row's interval, and add up what is above it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ._launches import launch
from ._logit_keys import KeyRows, limits, load_ordered, scale_of_row, weight, weights
from ._threshold_search import CHUNK, FIELDS, GROUP, GROUPS, HIGH, LOW, Search, needed_row

NEAR: tl.constexpr = tl.constexpr(8)
"""Groups above the lower bound up to which a program reads this many of a chunk, instead of all."""
PROGRAMS = 2048
"""Programs that fill a device."""
SEARCH_PROGRAMS = 256
"""Most programs that search a row each at one time."""
REGISTERS = 96
"""Maximum registers per thread, so that five programs share a multiprocessor."""
SPAN = 4
"""Chunks that a program gathers where rows alone fill the device."""
BITS: tl.constexpr = tl.constexpr(32)
"""Tokens of a word of bits."""
WORDS: tl.constexpr = tl.constexpr(CHUNK.value // BITS.value)
TILE: tl.constexpr = tl.constexpr(256)
"""Tokens whose weights are summed for a draw."""
TILES: tl.constexpr = tl.constexpr(CHUNK.value // TILE.value)
LISTED: tl.constexpr = tl.constexpr(CHUNK.value // 8)
"""Tokens per chunk, on average, up to which those of an interval are listed."""


class Gathered(NamedTuple):
    """Tokens of each row's interval: one bit for every token of a row, and a list of ids for each program."""

    words: Any
    listed: Any


@triton.jit
def packed(is_in):
    """Return words of bits for the last axis, which has 32 lanes."""
    axis: tl.constexpr = len(is_in.shape) - 1
    bit = tl.full((BITS,), 1, tl.int32) << tl.arange(0, BITS)
    return tl.sum(tl.where(is_in, bit, 0), axis=axis)


@triton.jit
def gather_few(gathered, search, rows, row, chunk, is_near, count, low, high, has_k, scale):
    """Gather the tokens of the few groups of each chunk that are near, without a look at the others."""
    NEAR_WORDS: tl.constexpr = GROUP // BITS
    turn = tl.arange(0, NEAR)
    turns = tl.where(is_near, tl.cumsum(is_near.to(tl.int32), axis=1) - 1, NEAR)
    is_turn = turns[:, None, :] == turn[None, :, None]
    near = tl.sum(tl.where(is_turn, tl.arange(0, GROUPS)[None, None, :], 0), axis=2)
    start = chunk[:, None] * CHUNK + near * GROUP
    ids = start[:, :, None] + tl.arange(0, GROUP)[None, None, :]
    is_group = turn[None, :] < count[:, None]
    x = load_ordered(rows, row, ids, is_group[:, :, None] & (ids < rows.vocabulary))
    is_in = (x > low) & (x <= high)
    is_chunk = chunk < rows.chunks
    at = row * rows.chunks + chunk
    words = packed(tl.reshape(is_in, (is_in.shape[0], NEAR, NEAR_WORDS, BITS)))
    word = tl.arange(0, WORDS)[None, :]
    tl.store(gathered.words + at[:, None] * WORDS + word, 0, mask=is_chunk[:, None])
    tl.debug_barrier()
    word = near[:, :, None] * NEAR_WORDS + tl.arange(0, NEAR_WORDS)[None, None, :]
    tl.store(gathered.words + at[:, None, None] * WORDS + word, words, mask=is_group[:, :, None])
    tops = tl.load(search.tops + at, mask=is_chunk, other=float("-inf"))[:, None, None]
    mass = tl.full(x.shape, 1.0, tl.float32)
    if rows.p is not None or search.tiles is not None:
        mass = tl.where(x > float("-inf"), weight(x, tops, scale), 0.0)
    measure = tl.where(has_k, 1.0, mass)
    tl.store(search.within + at, tl.sum(tl.sum(tl.where(is_in, measure, 0.0), axis=2), axis=1), mask=is_chunk)
    is_above = x > high
    tl.store(search.above + at, tl.sum(tl.sum(tl.where(is_above, measure, 0.0), axis=2), axis=1), mask=is_chunk)
    if search.tiles is not None:
        groups = tl.sum(tl.where(is_above, mass, 0.0), axis=2)
        tile = tl.arange(0, TILES)[None, None, :]
        in_tile = (near // (TILE // GROUP))[:, :, None] == tile
        tiles = tl.sum(tl.where(in_tile, groups[:, :, None], 0.0), axis=1)
        lane = at[:, None] * TILES + tl.arange(0, TILES)[None, :]
        tl.store(search.tiles + lane, tiles, mask=is_chunk[:, None])


@triton.jit
def gather_all(gathered, search, rows, row, chunk, low, high, has_k, scale):
    """Gather the tokens of all groups of a chunk."""
    at = row * rows.chunks + chunk
    word = tl.arange(0, WORDS)
    ids = chunk * CHUNK + word[:, None] * BITS + tl.arange(0, BITS)[None, :]
    x = load_ordered(rows, row, ids, ids < rows.vocabulary)
    is_above = x > high
    is_in = (x > low) & (x <= high)
    tl.store(gathered.words + at * WORDS + word, packed(is_in))
    mass = tl.full(x.shape, 1.0, tl.float32)
    if rows.p is not None or search.tiles is not None:
        mass = weights(x, tl.load(search.tops + at), scale)
    measure = mass
    if rows.k is not None:
        measure = tl.where(has_k, 1.0, mass)
    tl.store(search.within + at, tl.sum(tl.where(is_in, measure, 0.0)))
    in_word = tl.sum(tl.where(is_above, mass, 0.0), axis=1)
    if search.tiles is not None:
        tiles = tl.sum(tl.reshape(in_word, (TILES, TILE // BITS)), axis=1)
        tl.store(search.tiles + at * TILES + tl.arange(0, TILES), tiles)
    above = tl.sum(in_word, axis=0)
    if rows.k is not None:  # noqa: SIM102 -- decided when the kernel is compiled
        if has_k:
            above = tl.sum(is_above.to(tl.int32)).to(tl.float32)
    tl.store(search.above + at, above)


@triton.jit
def gather(gathered, search, rows, row, k, SPAN: tl.constexpr):
    """Gather the tokens of a row's interval in the chunks of this program."""
    fields = search.state + row * FIELDS
    low = tl.load(fields + LOW)
    high = tl.load(fields + HIGH)
    has_k = k < rows.vocabulary
    scale = scale_of_row(rows, row)
    start = tl.program_id(1) * SPAN
    chunk = start + tl.arange(0, SPAN)
    at = (row * rows.chunks + chunk)[:, None] * GROUPS + tl.arange(0, GROUPS)[None, :]
    maxima = tl.load(search.maxima + at, mask=(chunk < rows.chunks)[:, None], other=float("-inf"))
    is_near = maxima > low
    count = tl.sum(is_near.to(tl.int32), axis=1)
    is_few = tl.max(count, axis=0) <= NEAR
    if search.weights is not None and rows.k is None:
        # Groups that lie across a chunk are not adjacent tokens.
        is_few = False
    if is_few:
        gather_few(gathered, search, rows, row, chunk, is_near, count, low, high, has_k, scale)
    else:
        for one in range(start, tl.minimum(start + SPAN, rows.chunks)):
            gather_all(gathered, search, rows, row, one, low, high, has_k, scale)


@triton.jit
def _gather_kernel(gathered, search, rows, SPAN: tl.constexpr):
    n = tl.program_id(0)
    row = needed_row(search, n)
    while row >= 0:
        k, _p = limits(rows, row)
        gather(gathered, search, rows, row, k, SPAN)
        n += tl.num_programs(0)
        row = needed_row(search, n)


def search_programs(rows: int) -> int:
    """Return the number of programs that search `rows` rows, each one at a time."""
    return min(rows, SEARCH_PROGRAMS)


def make_gathered(rows: int, chunks: int, device: Any) -> Gathered:
    """Allocate what is gathered of `rows` rows, of which a program lists the tokens of one at a time."""
    words = torch.empty((rows, chunks, WORDS.value), dtype=torch.int32, device=device)
    listed = torch.empty(
        (search_programs(rows), triton.next_power_of_2(chunks) * LISTED.value), dtype=torch.int32, device=device
    )
    return Gathered(words, listed)


def gather_intervals(gathered: Gathered, search: Search, rows: KeyRows, programs: int) -> None:
    """Gather the tokens of the intervals."""
    span = SPAN if programs * rows.chunks > PROGRAMS else 1
    grid = (programs, triton.cdiv(rows.chunks, span))
    launch(_gather_kernel, grid, gathered, search, rows, SPAN=span, num_warps=4, maxnreg=REGISTERS)

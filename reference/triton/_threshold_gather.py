"""The second step of ``_thresholds``: gather the tokens of each row's interval, and add up what is above it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ._launches import launch
from ._logit_keys import KeyRows, limits, load_ordered, scale_of_row, weight
from ._threshold_search import CHUNK, FIELDS, GROUP, GROUPS, HIGH, LOW, Search, needed_row

NEAR: tl.constexpr = tl.constexpr(8)
"""Groups above the lower bound up to which a program reads this many of a chunk, instead of all."""
PROGRAMS = 2048
"""Programs that fill a device."""
SPAN = 8
"""Chunks that a program gathers where rows alone fill the device."""
RUN: tl.constexpr = tl.constexpr(16)
"""Tokens of a chunk that are counted together."""
TILE: tl.constexpr = tl.constexpr(256)
"""Tokens whose weights are summed for a draw."""
TILES: tl.constexpr = tl.constexpr(CHUNK.value // TILE.value)


class Gathered(NamedTuple):
    """Places of the tokens of each row's interval, chunk by chunk, and their numbers."""

    places: Any
    lengths: Any


@triton.jit
def masses_of(search, rows, x, tops, scale):
    """Return the weights of logits where they are needed, else 1."""
    mass = tl.full(x.shape, 1.0, tl.float32)
    if rows.p is not None or search.tiles is not None:
        mass = tl.where(x > float("-inf"), weight(x, tops, scale), 0.0)
    return mass


@triton.jit
def gather_few(gathered, search, rows, row, chunk, is_near, count, low, high, has_k, scale):
    """Gather the tokens of the few groups of each chunk that are near, without a look at the others."""
    turn = tl.arange(0, NEAR)
    turns = tl.where(is_near, tl.cumsum(is_near.to(tl.int32), axis=1) - 1, NEAR)
    is_turn = turns[:, None, :] == turn[None, :, None]
    near = tl.sum(tl.where(is_turn, tl.arange(0, GROUPS)[None, None, :], 0), axis=2)
    start = chunk[:, None] * CHUNK + near * GROUP
    ids = start[:, :, None] + tl.arange(0, GROUP)[None, None, :]
    mask = (turn[None, :] < count[:, None])[:, :, None] & (ids < rows.vocabulary)
    x = load_ordered(rows, row, ids, mask)
    is_in = ((x > low) & (x <= high)).to(tl.int32)
    in_group = tl.sum(is_in, axis=2)
    before = tl.cumsum(in_group, axis=1) - in_group
    place = before[:, :, None] + tl.cumsum(is_in, axis=2) - 1
    is_chunk = chunk < rows.chunks
    at = row * rows.chunks + chunk
    tl.store(gathered.places + at[:, None, None] * CHUNK + place, ids % CHUNK, mask=is_in > 0)
    tl.store(gathered.lengths + at, tl.sum(in_group, axis=1), mask=is_chunk)
    tops = tl.load(search.tops + at, mask=is_chunk, other=float("-inf"))
    mass = masses_of(search, rows, x, tops[:, None, None], scale)
    measure = tl.where(has_k, 1.0, mass)
    tl.store(search.within + at, tl.sum(tl.sum(tl.where(is_in > 0, measure, 0.0), axis=2), axis=1), mask=is_chunk)
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
    lane = tl.arange(0, CHUNK)
    ids = chunk * CHUNK + lane
    x = load_ordered(rows, row, ids, ids < rows.vocabulary)
    is_above = x > high
    is_in = ((x > low) & (x <= high)).to(tl.int32)
    # Short sums inside each run, then one over the runs: less than half the time of one over the chunk.
    runs = tl.reshape(is_in, (CHUNK // RUN, RUN))
    in_run = tl.sum(runs, axis=1)
    before = tl.cumsum(in_run, axis=0) - in_run
    place = tl.reshape(before[:, None] + tl.cumsum(runs, axis=1) - 1, (CHUNK,))
    tl.store(gathered.places + at * CHUNK + place, lane, mask=is_in > 0)
    tl.store(gathered.lengths + at, tl.sum(in_run, axis=0))
    mass = masses_of(search, rows, x, tl.load(search.tops + at), scale)
    measure = tl.where(has_k, 1.0, mass)
    tl.store(search.within + at, tl.sum(tl.where(is_in > 0, measure, 0.0), axis=0))
    tl.store(search.above + at, tl.sum(tl.where(is_above, measure, 0.0), axis=0))
    if search.tiles is not None:
        tiles = tl.sum(tl.reshape(tl.where(is_above, mass, 0.0), (TILES, TILE)), axis=1)
        tl.store(search.tiles + at * TILES + tl.arange(0, TILES), tiles)


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
    if tl.max(count, axis=0) <= NEAR:
        gather_few(gathered, search, rows, row, chunk, is_near, count, low, high, has_k, scale)
    else:
        for one in range(start, tl.minimum(start + SPAN, rows.chunks)):
            gather_all(gathered, search, rows, row, one, low, high, has_k, scale)


@triton.jit
def _gather_kernel(gathered, search, rows, SPAN: tl.constexpr):
    n = 0
    row = needed_row(search, rows, n)
    while row >= 0:
        k, _p = limits(rows, row)
        gather(gathered, search, rows, row, k, SPAN)
        n += 1
        row = needed_row(search, rows, n)


def make_gathered(count: int, chunks: int, device: Any, most_places: int | None = None) -> Gathered:
    """Allocate what is gathered of `count` rows, without the places if there are more than `most_places`."""
    lengths = torch.empty((count, chunks), dtype=torch.int32, device=device)
    is_small = most_places is None or lengths.numel() * CHUNK.value <= most_places
    return Gathered(_make_places(lengths) if is_small else None, lengths)


def _make_places(lengths: Any) -> Any:
    return torch.empty((*lengths.shape, CHUNK.value), dtype=torch.int16, device=lengths.device)


def gather_intervals(gathered: Gathered, search: Search, rows: KeyRows, programs: int) -> Gathered:
    """Gather the tokens of the intervals and return them; places that `gathered` lacks are allocated."""
    if gathered.places is None:
        gathered = gathered._replace(places=_make_places(gathered.lengths))
    span = SPAN if programs * rows.chunks > PROGRAMS else 1
    # The interval of top-p takes whole chunks. Registers are limited so that the programs of all rows run at once.
    warps, registers = (4, 128) if rows.p is None else (8, 80)
    grid = (programs, triton.cdiv(rows.chunks, span))
    launch(_gather_kernel, grid, gathered, search, rows, SPAN=span, num_warps=warps, maxnreg=registers)
    return gathered

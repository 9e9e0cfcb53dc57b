"""Attention of rotated queries to a paged cache, for a batch of float32 rows.

A program has a tile of one request's queries for one key-value head. Where that makes few programs, the keys are split
among several, so that a long sequence is not read block after block. Each leaves its share in scratch memory and takes
a ticket of its tile. The program with the last ticket joins the shares, and sets the counter back to zero.

Scores are sums of three products of TF32, which are about as exact as float32 ("tf32x3").
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ._overlap import after_launches_before, overlapping

_SIZES = {64: (64, 128, 264), 128: (64, 128, 132)}
"""By the size of a head: keys per step where each block of keys has a program and elsewhere, and programs up to which
keys are split. An H100 runs two programs per multiprocessor with heads of 64 and one with heads of 128."""
_OTHER_SIZES = 32, 32, 132
"""The same for other sizes of heads, so that shared memory suffices."""
_ROW_BLOCK = 16
"""Rows of queries per program, the fewest that a matrix product takes."""
_FEW_PROGRAMS = 132
"""Programs up to which each has eight warps: an H100 has as many multiprocessors."""
_MOST_SPLITS = 16
"""Programs that share a tile's keys; more of them would be joined more slowly than their keys are read."""


class Shares(NamedTuple):
    """Sums that the programs of a tile leave, each over its keys and relative to the largest score among them.

    Attributes:
        mixed: [tiles, splits, rows, head size rounded up] float32 weighted sums of values.
        total: [tiles, splits, rows] float32 sums of weights.
        top: [tiles, splits, rows] float32 largest scores.
        tickets: [tiles] int32, zero between launches.
    """

    mixed: Any
    total: Any
    top: Any
    tickets: Any


_tickets: dict[tuple[Any, int], Any] = {}


def _make_shares(device: Any, tiles: int, splits: int, rows: int, block: int) -> Shares | None:
    """Return scratch memory; None if keys are not split. Tickets are kept, so that no launch has to clear them."""
    if splits == 1:
        return None
    key = device, triton.next_power_of_2(tiles)
    tickets = _tickets.get(key)
    if tickets is None:
        tickets = torch.zeros(key[1], dtype=torch.int32, device=device)
        # Memory of a graph is its own, and every replay clears it.
        if not (device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
            _tickets[key] = tickets
    mixed = torch.empty((tiles, splits, rows, block), device=device)
    total, top = torch.empty((2, tiles, splits, rows), device=device).unbind()
    return Shares(mixed, total, top, tickets)


def attend(
    qkv: Any,
    out: Any,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    scale: float,
    cache: Any,
    positions: Any,
    query_start_loc: Any,
    max_query_len: int,
    seq_lens: Any,
    block_table: Any,
    block_size: int,
) -> None:
    """Attend the rotated queries of `qkv` to the cache: each sees its own sequence up to its own position.

    Args:
        qkv: [T, (heads + 2 * key-value heads) * head size] with rotated queries.
        out: [T, heads * head size].
        num_heads: heads of queries.
        num_kv_heads: heads of keys, and of values.
        head_dim: size of a head.
        scale: factor of the scores.
        cache: [slots, 2 * key-value heads * head size].
        positions: [T] int64.
        query_start_loc: [B + 1] int32.
        max_query_len: tokens of the request with most of them.
        seq_lens: [B] int32 tokens of each sequence; no later one is read.
        block_table: [B, blocks] int32; blocks outside of the cache are not read.
        block_size: tokens per block.
    """
    rows, block = max_query_len * (num_heads // num_kv_heads), max(16, triton.next_power_of_2(head_dim))
    tiles = triton.cdiv(rows, _ROW_BLOCK)
    keys, splits = _split(seq_lens.shape[0] * num_kv_heads * tiles, block_table.shape[1] * block_size, block)
    grid = seq_lens.shape[0], num_kv_heads, tiles * splits
    _attention_kernel[grid](
        qkv,
        out,
        scale,
        cache,
        cache.shape[0],
        positions,
        query_start_loc,
        seq_lens,
        block_table,
        block_table.stride(0),
        block_table.shape[1],
        block_size,
        _make_shares(qkv.device, math.prod(grid) // splits, splits, _ROW_BLOCK, block),
        HEADS=num_heads,
        KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        ROWS=_ROW_BLOCK,
        KEYS=keys,
        BLOCK=block,
        SPLITS=splits,
        num_warps=8 if math.prod(grid) <= _FEW_PROGRAMS else 4,
        num_stages=1,
        **overlapping(qkv),
    )


def _split(tiles: int, num_keys: int, block: int) -> tuple[int, int]:
    """Return the keys per step of a program, and the power of two of programs that share a tile's `num_keys` keys."""
    few, many, programs = _SIZES.get(block, _OTHER_SIZES)
    free = min(max(programs // tiles, 1), _MOST_SPLITS)
    wanted = triton.next_power_of_2(triton.cdiv(num_keys, few))
    if wanted <= free:
        return few, wanted
    return many, min(triton.next_power_of_2(triton.cdiv(num_keys, many)), 1 << (free.bit_length() - 1))


@triton.jit
def _attention_kernel(
    qkv,
    out,
    scale,
    cache,
    num_slots,
    positions,
    query_start_loc,
    seq_lens,
    block_table,
    block_table_stride,
    columns,
    block_size,
    shares,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    after_launches_before(OVERLAPS)
    request, kv_head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    tile, split = tl.program_id(2) // SPLITS, tl.program_id(2) % SPLITS
    start, end = tl.load(query_start_loc + request), tl.load(query_start_loc + request + 1)
    # The query heads of one key-value head are further queries, so that its keys are loaded once.
    PER_KV: tl.constexpr = HEADS // KV_HEADS
    row = tile * ROWS + tl.arange(0, ROWS)
    token, head = (start + row // PER_KV).to(tl.int64), kv_head * PER_KV + row % PER_KV
    is_query = token < end
    if tile * ROWS >= (end - start) * PER_KV:
        return
    position = tl.load(positions + token, mask=is_query, other=-1)
    dims = tl.arange(0, BLOCK)
    is_dim = dims < HEAD_DIM
    WIDTH: tl.constexpr = (HEADS + 2 * KV_HEADS) * HEAD_DIM
    query = tl.load(
        qkv + token[:, None] * WIDTH + head[:, None] * HEAD_DIM + dims[None, :],
        mask=is_query[:, None] & is_dim[None, :],
        other=0.0,
    )
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, BLOCK), tl.float32)
    length = tl.minimum(tl.load(seq_lens + request), columns * block_size)
    length = tl.minimum(length, (tl.max(position, axis=0) + 1).to(tl.int32))
    share = tl.cdiv(tl.cdiv(length, SPLITS), KEYS) * KEYS
    for first in range(split * share, tl.minimum((split + 1) * share, length), KEYS):
        key = first + tl.arange(0, KEYS)
        is_key = key < length
        block = tl.load(block_table + request * block_table_stride + key // block_size, mask=is_key, other=0)
        slot = block.to(tl.int64) * block_size + key % block_size
        is_key = is_key & (slot >= 0) & (slot < num_slots)
        entry = cache + (slot * 2 * KV_HEADS + kv_head) * HEAD_DIM
        loads = is_key[:, None] & is_dim[None, :]
        keys = tl.load(entry[:, None] + dims[None, :], mask=loads, other=0.0)
        values = tl.load(entry[:, None] + KV_HEADS * HEAD_DIM + dims[None, :], mask=loads, other=0.0)
        scores = tl.dot(query, tl.trans(keys), input_precision="tf32x3") * scale
        scores = tl.where(is_key[None, :] & (key[None, :] <= position[:, None]), scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        # A row without any key yet keeps a finite reference, so that no difference of infinities is NaN.
        reference = tl.where(new_top == float("-inf"), 0.0, new_top)
        weights = tl.exp(scores - reference[:, None])
        decay = tl.exp(top - reference)
        total = total * decay + tl.sum(weights, axis=1)
        mixed = mixed * decay[:, None] + tl.dot(weights, values, input_precision="tf32x3")
        top = new_top
    is_last = True
    if SPLITS > 1:
        place = (request * KV_HEADS + kv_head) * (tl.num_programs(2) // SPLITS) + tile
        _leave(shares, place * SPLITS + split, mixed, total, top, ROWS, BLOCK)
        # Every thread's stores come before the ticket, and the last program's loads after it.
        tl.debug_barrier()
        is_last = tl.atomic_add(shares.tickets + place, 1, sem="acq_rel") == SPLITS - 1
        tl.debug_barrier()
        if is_last:
            mixed, total = _join(shares, place * SPLITS, SPLITS, ROWS, BLOCK)
            tl.store(shares.tickets + place, 0)
    if is_last:
        mixed = mixed / tl.where(total > 0, total, 1.0)[:, None]
        tl.store(
            out + token[:, None] * HEADS * HEAD_DIM + head[:, None] * HEAD_DIM + dims[None, :],
            mixed,
            mask=is_query[:, None] & is_dim[None, :],
        )


@triton.jit
def _leave(shares, part, mixed, total, top, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Store the sums of a program."""
    row = part * ROWS + tl.arange(0, ROWS)
    tl.store(shares.mixed + row[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :], mixed)
    tl.store(shares.total + row, total)
    tl.store(shares.top + row, top)


@triton.jit
def _join(shares, first, SPLITS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the sums of all programs of a tile, relative to the largest score of all."""
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    for split in tl.static_range(SPLITS):
        top = tl.maximum(top, tl.load(shares.top + (first + split) * ROWS + tl.arange(0, ROWS)))
    reference = tl.where(top == float("-inf"), 0.0, top)
    mixed, total = tl.zeros((ROWS, BLOCK), tl.float32), tl.zeros((ROWS,), tl.float32)
    for split in tl.static_range(SPLITS):
        row = (first + split) * ROWS + tl.arange(0, ROWS)
        decay = tl.exp(tl.load(shares.top + row) - reference)
        total += tl.load(shares.total + row) * decay
        mixed += tl.load(shares.mixed + row[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]) * decay[:, None]
    return mixed, total

"""Kernels of a decoder layer, for a paged batch of float32 rows.

A pass of a small model waits for its kernels, so that a layer has few of them. The rotation of queries and keys writes
the KV cache; products are in ``_linear.py``. Scores are sums of three products of TF32, which are about as exact as
float32 ("tf32x3").
"""

from __future__ import annotations

import math
from typing import Any

import triton
import triton.language as tl

from ._overlap import after_launches_before, overlapping

_KEY_BLOCKS = {64: 128, 128: 128}
"""Keys per step of a program by the size of a head; other sizes take 32, so that shared memory suffices."""
_ROW_BLOCK = 16
"""Rows of queries per program, the fewest that a matrix product takes."""
_FEW_PROGRAMS = 132
"""Programs of attention up to which each has eight warps: an H100 has as many multiprocessors."""
_ONE_WARP = 512
"""Longest row that one warp norms: more of them would wait for each other."""


def rms_norm(x: Any, weight: Any, epsilon: float, out: Any) -> None:
    """Write the RMS norm of each row of `x`, [T, H], to `out`, whose rows may lie apart."""
    rows, width = x.shape
    block = triton.next_power_of_2(width)
    _rms_norm_kernel[(rows,)](
        x,
        weight,
        out,
        out.stride(0),
        width,
        epsilon,
        BLOCK=block,
        num_warps=1 if block <= _ONE_WARP else 8,
        **overlapping(x),
    )


@triton.jit
def _rms_norm_kernel(x, weight, out, out_stride, width, epsilon, BLOCK: tl.constexpr, OVERLAPS: tl.constexpr):
    after_launches_before(OVERLAPS)
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    mask = lanes < width
    values = tl.load(x + row * width + lanes, mask=mask, other=0.0)
    weights = tl.load(weight + lanes, mask=mask, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(values * values, axis=0) / width + epsilon)
    tl.store(out + row * out_stride + lanes, values * scale * weights, mask=mask)


def rotate_and_store(
    qkv: Any,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    norms: Any | None,
    epsilon: float,
    cosine: Any,
    sine: Any,
    positions: Any,
    slots: Any,
    cache: Any,
) -> None:
    """Rotate the queries of `qkv` in place; rotate its keys and store them and the values in the cache.

    Args:
        qkv: [T, (heads + 2 * key-value heads) * head size].
        num_heads: heads of queries.
        num_kv_heads: heads of keys, and of values.
        head_dim: size of a head, even.
        norms: [2, head size] weights of the norms of queries and of keys; None without them.
        epsilon: epsilon of the norms.
        cosine: [positions, head size].
        sine: [positions, head size].
        positions: [T] int64.
        slots: [T] int64; keys of slots outside of the cache are dropped.
        cache: [slots, 2 * key-value heads * head size].
    """
    _rotate_kernel[(qkv.shape[0],)](
        qkv,
        qkv if norms is None else norms,
        epsilon,
        cosine,
        sine,
        cosine.shape[0],
        positions,
        slots,
        cache,
        cache.shape[0],
        HEADS=num_heads,
        KV_HEADS=num_kv_heads,
        HALF=head_dim // 2,
        NORM=norms is not None,
        HEAD_BLOCK=triton.next_power_of_2(num_heads + 2 * num_kv_heads),
        BLOCK=triton.next_power_of_2(head_dim // 2),
        num_warps=4,
        **overlapping(qkv),
    )


@triton.jit
def _rotate_kernel(
    qkv,
    norms,
    epsilon,
    cosine,
    sine,
    num_positions,
    positions,
    slots,
    cache,
    num_slots,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HALF: tl.constexpr,
    NORM: tl.constexpr,
    HEAD_BLOCK: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    after_launches_before(OVERLAPS)
    token = tl.program_id(0).to(tl.int64)
    head, lane = tl.arange(0, HEAD_BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    is_lane = lane < HALF
    mask = (head < HEADS + 2 * KV_HEADS) & is_lane
    row = qkv + (token * (HEADS + 2 * KV_HEADS) + head) * 2 * HALF + lane
    low, high = tl.load(row, mask=mask, other=0.0), tl.load(row + HALF, mask=mask, other=0.0)
    is_rotated = mask & (head < HEADS + KV_HEADS)
    if NORM:
        scale = 1.0 / tl.sqrt(tl.sum(low * low + high * high, axis=1)[:, None] / (2 * HALF) + epsilon)
        weight = norms + (head >= HEADS).to(tl.int32) * 2 * HALF + lane
        low = tl.where(is_rotated, low * scale * tl.load(weight, mask=is_rotated, other=0.0), low)
        high = tl.where(is_rotated, high * scale * tl.load(weight + HALF, mask=is_rotated, other=0.0), high)
    # Placeholders behind the longest sequence have no rotation, and nothing reads them.
    position = tl.maximum(tl.minimum(tl.load(positions + token), num_positions - 1), 0)
    cosines, sines = cosine + position * 2 * HALF + lane, sine + position * 2 * HALF + lane
    rotated_low = low * tl.load(cosines, mask=is_lane, other=0.0) - high * tl.load(sines, mask=is_lane, other=0.0)
    rotated_high = high * tl.load(cosines + HALF, mask=is_lane, other=0.0)
    rotated_high += low * tl.load(sines + HALF, mask=is_lane, other=0.0)
    low, high = tl.where(is_rotated, rotated_low, low), tl.where(is_rotated, rotated_high, high)
    is_query = mask & (head < HEADS)
    tl.store(row, low, mask=is_query)
    tl.store(row + HALF, high, mask=is_query)
    slot = tl.load(slots + token)
    if slot >= 0 and slot < num_slots:
        entry = cache + (slot * 2 * KV_HEADS + head - HEADS) * 2 * HALF + lane
        is_cached = mask & (head >= HEADS)
        tl.store(entry, low, mask=is_cached)
        tl.store(entry + HALF, high, mask=is_cached)


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
    grid = seq_lens.shape[0], num_kv_heads, triton.cdiv(rows, _ROW_BLOCK)
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
        HEADS=num_heads,
        KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        ROWS=_ROW_BLOCK,
        KEYS=_KEY_BLOCKS.get(block, 32),
        BLOCK=block,
        num_warps=8 if math.prod(grid) <= _FEW_PROGRAMS else 4,
        num_stages=1,
        **overlapping(qkv),
    )


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
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    after_launches_before(OVERLAPS)
    request, kv_head, tile = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
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
    for first in range(0, length, KEYS):
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
    mixed = mixed / tl.where(total > 0, total, 1.0)[:, None]
    tl.store(
        out + token[:, None] * HEADS * HEAD_DIM + head[:, None] * HEAD_DIM + dims[None, :],
        mixed,
        mask=is_query[:, None] & is_dim[None, :],
    )

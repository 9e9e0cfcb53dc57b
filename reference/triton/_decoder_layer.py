"""Kernels of a decoder layer, for a paged batch of float32 rows.

A pass of a small model waits for its kernels, so that a layer has few of them. The rotation of queries and keys writes
the KV cache; attention is in ``_attention.py``, products are in ``_linear.py``.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ._overlap import after_launches_before, overlapping

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
    # Padding tokens past the last position are rotated like the last one; nothing reads them.
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

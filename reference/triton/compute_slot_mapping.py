"""compute_slot_mapping: slot = block_table[b, position // block] * block + position % block; PAD_ID for the tail.

With W ranks a table entry covers W * block positions, dealt to the ranks in runs of the interleave size. A token of
another rank gets PAD_ID.

One launch, with one program per request and one for the tail.

Source: vLLM 0.33.0, ComputeSlotMappingKernel.kernel.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_tokens", "max_num_tokens"])
def _slot_kernel(
    num_tokens,
    max_num_tokens,
    query_start_loc,
    query_stride,
    positions,
    positions_stride,
    block_table,
    block_table_stride_0,
    block_table_stride_1,
    columns,
    slot_mapping,
    slot_stride,
    PAD_ID,
    KV_BLOCK: tl.constexpr,
    WORLD: tl.constexpr,
    RANK: tl.constexpr,
    INTERLEAVE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK).to(tl.int64)
    if request == tl.num_programs(0) - 1:
        for offset in range(num_tokens, max_num_tokens, BLOCK):
            token = offset + lanes
            pad = tl.full((BLOCK,), 0, tl.int64) + PAD_ID
            tl.store(slot_mapping + token * slot_stride, pad, mask=token < max_num_tokens)
        return
    start = tl.load(query_start_loc + request * query_stride).to(tl.int64)
    end = tl.load(query_start_loc + (request + 1) * query_stride).to(tl.int64)
    row = block_table + request * block_table_stride_0
    for offset in range(start, end, BLOCK):
        token = offset + lanes
        mask = token < end
        position = tl.load(positions + token * positions_stride, mask=mask, other=0).to(tl.int64)
        is_in = mask & (position >= 0) & (position // (KV_BLOCK * WORLD) < columns)
        position = tl.where(is_in, position, 0)
        column = position // (KV_BLOCK * WORLD)
        within = position % (KV_BLOCK * WORLD)
        run = within // INTERLEAVE
        is_in = is_in & (run % WORLD == RANK)
        block = tl.load(row + column * block_table_stride_1, mask=is_in, other=0).to(tl.int64)
        slot = block * KV_BLOCK + run // WORLD * INTERLEAVE + within % INTERLEAVE
        tl.store(slot_mapping + token * slot_stride, tl.where(is_in, slot, PAD_ID), mask=mask)


def compute_slot_mapping(
    *,
    num_tokens: int,
    max_num_tokens: int,
    query_start_loc_ptr: Any,
    positions_ptr: Any,
    block_table_ptr: Any,
    block_table_stride: int,
    slot_mapping_ptr: Any,
    KV_CACHE_BLOCK_SIZE: int,
    TOTAL_CP_WORLD_SIZE: int,
    TOTAL_CP_RANK: int,
    CP_KV_CACHE_INTERLEAVE_SIZE: int,
    PAD_ID: int,
    BLOCK_SIZE: int = 0,
) -> None:
    requests = query_start_loc_ptr.shape[0] - 1
    _slot_kernel[(requests + 1,)](
        num_tokens,
        max_num_tokens,
        query_start_loc_ptr,
        query_start_loc_ptr.stride(0),
        positions_ptr,
        positions_ptr.stride(0),
        block_table_ptr,
        *block_table_ptr.stride(),
        block_table_ptr.shape[1],
        slot_mapping_ptr,
        slot_mapping_ptr.stride(0),
        PAD_ID,
        KV_BLOCK=KV_CACHE_BLOCK_SIZE,
        WORLD=TOTAL_CP_WORLD_SIZE,
        RANK=TOTAL_CP_RANK,
        INTERLEAVE=CP_KV_CACHE_INTERLEAVE_SIZE,
        BLOCK=1024,
    )

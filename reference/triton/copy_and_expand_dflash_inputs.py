"""copy_and_expand_dflash_inputs: each request's target tokens as context, its next and mask tokens as queries.

    slot = block_table[position // block_size] * block_size + position % block_size

One launch; several programs share the tokens and queries of a request.

Source: vLLM 0.33.0, copy_and_expand_dflash_inputs_kernel.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["parallel_drafting_token_id"])
def _expand_kernel(
    next_token_ids,
    next_stride,
    target_positions,
    target_positions_stride,
    out_input_ids,
    out_ids_stride,
    out_context_positions,
    out_context_positions_stride,
    out_query_positions,
    out_query_positions_stride,
    out_context_slots,
    out_context_slots_stride,
    out_query_slots,
    out_query_slots_stride,
    out_token_indices,
    out_indices_stride,
    block_table,
    block_table_stride_0,
    block_table_stride_1,
    columns,
    query_start_loc,
    start_stride,
    num_rejected_tokens,
    rejected_stride,
    parallel_drafting_token_id,
    queries,
    drafts,
    BLOCK_SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    start = tl.load(query_start_loc + request * start_stride).to(tl.int64)
    end = tl.load(query_start_loc + (request + 1) * start_stride).to(tl.int64)
    next_token = tl.load(next_token_ids + request * next_stride).to(tl.int64)
    last = end - 1
    if num_rejected_tokens is not None:
        last -= tl.load(num_rejected_tokens + request * rejected_stride).to(tl.int64)
    last = tl.minimum(tl.maximum(last, start), end - 1)
    before = tl.load(target_positions + last * target_positions_stride, mask=start < end, other=-1).to(tl.int64)
    length = end - start
    row = block_table + request * block_table_stride_0
    for offset in range(tl.program_id(1) * BLOCK, length + queries, tl.num_programs(1) * BLOCK):
        place = offset + tl.arange(0, BLOCK).to(tl.int64)
        is_context = place < length
        query = place - length
        is_query = (query >= 0) & (query < queries)
        token = start + place
        known = tl.load(target_positions + token * target_positions_stride, mask=is_context, other=0).to(tl.int64)
        position = tl.where(is_context, known, before + 1 + query)
        column = tl.minimum(tl.maximum(position // BLOCK_SIZE, 0), columns - 1)
        is_in = (is_context | is_query) & (column >= 0)
        block = tl.load(row + column * block_table_stride_1, mask=is_in, other=0).to(tl.int64)
        slot = block * BLOCK_SIZE + position % BLOCK_SIZE
        tl.store(out_context_positions + token * out_context_positions_stride, position, mask=is_context)
        tl.store(out_context_slots + token * out_context_slots_stride, slot, mask=is_context)
        out = request * queries + query
        ids = tl.where(query == 0, next_token, parallel_drafting_token_id)
        tl.store(out_input_ids + out * out_ids_stride, ids, mask=is_query)
        tl.store(out_query_positions + out * out_query_positions_stride, position, mask=is_query)
        tl.store(out_query_slots + out * out_query_slots_stride, slot, mask=is_query)
        index = request * drafts + query - 1
        tl.store(out_token_indices + index * out_indices_stride, out, mask=is_query & (query > 0))


def copy_and_expand_dflash_inputs(
    *,
    next_token_ids_ptr: Any,
    target_positions_ptr: Any,
    out_input_ids_ptr: Any,
    out_context_positions_ptr: Any,
    out_query_positions_ptr: Any,
    out_context_slot_mapping_ptr: Any,
    out_query_slot_mapping_ptr: Any,
    out_token_indices_ptr: Any,
    block_table_ptr: Any,
    block_table_stride: int,
    query_start_loc_ptr: Any,
    num_rejected_tokens_ptr: Any,
    parallel_drafting_token_id: int,
    block_size: int,
    num_query_per_req: int,
    num_speculative_tokens: int,
    total_input_tokens: int,
    BLOCK_SIZE: int = 0,
    HAS_NUM_REJECTED: bool = False,
) -> None:
    requests = query_start_loc_ptr.shape[0] - 1
    if requests == 0:
        return
    block = 128
    # The host knows only the mean length. It launches programs for twice the mean; they loop over longer requests.
    shares = min(triton.cdiv(2 * total_input_tokens // requests + num_query_per_req, block), 16)
    rejected = num_rejected_tokens_ptr if HAS_NUM_REJECTED else None
    _expand_kernel[(requests, shares)](
        next_token_ids_ptr,
        next_token_ids_ptr.stride(0),
        target_positions_ptr,
        target_positions_ptr.stride(0),
        out_input_ids_ptr,
        out_input_ids_ptr.stride(0),
        out_context_positions_ptr,
        out_context_positions_ptr.stride(0),
        out_query_positions_ptr,
        out_query_positions_ptr.stride(0),
        out_context_slot_mapping_ptr,
        out_context_slot_mapping_ptr.stride(0),
        out_query_slot_mapping_ptr,
        out_query_slot_mapping_ptr.stride(0),
        out_token_indices_ptr,
        out_token_indices_ptr.stride(0),
        block_table_ptr,
        *block_table_ptr.stride(),
        block_table_ptr.shape[1],
        query_start_loc_ptr,
        query_start_loc_ptr.stride(0),
        rejected,
        0 if rejected is None else rejected.stride(0),
        parallel_drafting_token_id,
        num_query_per_req,
        num_speculative_tokens,
        BLOCK_SIZE=block_size,
        BLOCK=block,
        num_warps=4,
    )

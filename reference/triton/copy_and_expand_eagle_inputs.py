"""copy_and_expand_eagle_inputs: each request's target tokens, its bonus token, P - 1 mask tokens, padding.

One launch; several programs share the slots of a request.

Source: vLLM 0.33.0, copy_and_expand_eagle_inputs_kernel.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["padding_token_id", "parallel_drafting_token_id"])
def _copy_kernel(
    target_token_ids,
    target_ids_stride,
    target_positions,
    target_positions_stride,
    next_token_ids,
    next_stride,
    out_input_ids,
    out_ids_stride,
    out_positions,
    out_positions_stride,
    out_is_rejected,
    out_is_rejected_stride,
    out_is_masked,
    out_is_masked_stride,
    out_new_token_indices,
    out_new_stride,
    out_hidden_state_mapping,
    out_mapping_stride,
    query_start_loc,
    start_stride,
    query_end_loc,
    end_stride,
    padding_token_id,
    parallel_drafting_token_id,
    new_slots,
    SHIFT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # Slots and tokens of a batch fit in 32 bits, addresses need 64.
    request = tl.program_id(0)
    start = tl.load(query_start_loc + request.to(tl.int64) * start_stride).to(tl.int32)
    end = tl.load(query_start_loc + (request + 1).to(tl.int64) * start_stride).to(tl.int32)
    last = tl.load(query_end_loc + request.to(tl.int64) * end_stride).to(tl.int32)
    bonus = tl.load(next_token_ids + request.to(tl.int64) * next_stride).to(tl.int64)
    dropped = 1 if SHIFT else 0
    copied = last + 1 - start - dropped
    slots = end - start - dropped + new_slots
    position = tl.load(target_positions + start.to(tl.int64) * target_positions_stride, mask=end > start, other=0)
    offset = tl.program_id(1) * BLOCK
    # The first block does not wait for the comparison with the end, so that all loads above start at once.
    is_unfinished = True
    while is_unfinished:
        slot = offset + tl.arange(0, BLOCK)
        mask = slot < slots
        source = (start + dropped + slot).to(tl.int64) * target_ids_stride
        # Load rejected tokens too, so that this load does not wait for `last`.
        token = tl.load(target_token_ids + source, mask=slot < end - start - dropped, other=0).to(tl.int64)
        is_new = (slot >= copied) & (slot < copied + new_slots)
        is_masked = is_new & (slot > copied)
        is_rejected = slot >= copied + new_slots
        other = tl.where(is_rejected, padding_token_id, tl.where(is_masked, parallel_drafting_token_id, bonus))
        index = start + request * (new_slots - dropped) + slot
        out = index.to(tl.int64)
        if SHIFT:
            mapping = out_hidden_state_mapping + (start + slot).to(tl.int64) * out_mapping_stride
            tl.store(mapping, index, mask=slot < end - start)
        tl.store(out_is_rejected + out * out_is_rejected_stride, is_rejected, mask=mask)
        tl.store(out_is_masked + out * out_is_masked_stride, is_masked, mask=mask)
        new = (request * new_slots + slot - copied).to(tl.int64)
        tl.store(out_new_token_indices + new * out_new_stride, index, mask=is_new)
        tl.store(out_positions + out * out_positions_stride, tl.where(is_rejected, 0, position + slot), mask=mask)
        tl.store(out_input_ids + out * out_ids_stride, tl.where(slot < copied, token, other), mask=mask)
        offset += tl.num_programs(1) * BLOCK
        is_unfinished = offset < slots


def copy_and_expand_eagle_inputs(
    *,
    target_token_ids_ptr: Any,
    target_positions_ptr: Any,
    next_token_ids_ptr: Any,
    out_input_ids_ptr: Any,
    out_positions_ptr: Any,
    out_is_rejected_token_mask_ptr: Any,
    out_is_masked_token_mask_ptr: Any,
    out_new_token_indices_ptr: Any,
    out_hidden_state_mapping_ptr: Any,
    query_start_loc_ptr: Any,
    query_end_loc_ptr: Any,
    padding_token_id: int,
    parallel_drafting_token_id: int,
    total_input_tokens: int,
    num_padding_slots_per_request: int,
    shift_input_ids: bool,
    BLOCK_SIZE_TOKENS: int = 0,
) -> None:
    requests = query_end_loc_ptr.shape[0]
    if requests == 0:
        return
    block = 128
    # The host knows only the mean length. It launches programs for twice the mean; they loop over longer requests.
    shares = min(triton.cdiv(2 * total_input_tokens // requests + num_padding_slots_per_request, block), 16)
    _copy_kernel[(requests, shares)](
        target_token_ids_ptr,
        target_token_ids_ptr.stride(0),
        target_positions_ptr,
        target_positions_ptr.stride(0),
        next_token_ids_ptr,
        next_token_ids_ptr.stride(0),
        out_input_ids_ptr,
        out_input_ids_ptr.stride(0),
        out_positions_ptr,
        out_positions_ptr.stride(0),
        out_is_rejected_token_mask_ptr,
        out_is_rejected_token_mask_ptr.stride(0),
        out_is_masked_token_mask_ptr,
        out_is_masked_token_mask_ptr.stride(0),
        out_new_token_indices_ptr,
        out_new_token_indices_ptr.stride(0),
        out_hidden_state_mapping_ptr,
        out_hidden_state_mapping_ptr.stride(0),
        query_start_loc_ptr,
        query_start_loc_ptr.stride(0),
        query_end_loc_ptr,
        query_end_loc_ptr.stride(0),
        padding_token_id,
        parallel_drafting_token_id,
        num_padding_slots_per_request,
        SHIFT=shift_input_ids,
        BLOCK=block,
        num_warps=4,
    )

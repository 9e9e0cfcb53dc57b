"""eagle_prepare_next_token_padded: the last valid token of a row and the number of valid ones, or the backup token.

A token is valid if 0 <= token < vocab_size. A discarded request has no valid token.

One launch, with one program per request.

Source: vLLM 0.33.0, eagle_prepare_next_token_padded_kernel.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def _next_token_kernel(
    sampled_token_ids,
    sampled_stride_0,
    sampled_stride_1,
    discard_request_mask,
    discard_stride,
    backup_next_token_ids,
    backup_stride,
    next_token_ids,
    next_stride,
    valid_sampled_tokens_count,
    valid_stride,
    vocab_size,
    columns,
    PADDED: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, PADDED)
    limit = tl.where(tl.load(discard_request_mask + request * discard_stride) != 0, 0, columns)
    tokens = tl.load(
        sampled_token_ids + request * sampled_stride_0 + column.to(tl.int64) * sampled_stride_1,
        mask=column < limit,
        other=-1,
    ).to(tl.int64)
    is_valid = (tokens >= 0) & (tokens < vocab_size)
    last = tl.max(tl.where(is_valid, column, -1), axis=0)
    token = tl.sum(tl.where(column == last, tokens, 0), axis=0)
    if last < 0:
        token = tl.load(backup_next_token_ids + request * backup_stride).to(tl.int64)
    tl.store(next_token_ids + request * next_stride, token)
    tl.store(valid_sampled_tokens_count + request * valid_stride, tl.sum(is_valid.to(tl.int32), axis=0))


def eagle_prepare_next_token_padded(
    *,
    sampled_token_ids_ptr: Any,
    discard_request_mask_ptr: Any,
    backup_next_token_ids_ptr: Any,
    next_token_ids_ptr: Any,
    valid_sampled_tokens_count_ptr: Any,
    vocab_size: int,
    num_sampled_tokens_per_req: int,
    num_reqs: int,
    stride_sampled_token_ids: int,
    BLOCK_SIZE_TOKENS: int = 0,
) -> None:
    if num_reqs == 0:
        return
    _next_token_kernel[(num_reqs,)](
        sampled_token_ids_ptr,
        *sampled_token_ids_ptr.stride(),
        discard_request_mask_ptr,
        discard_request_mask_ptr.stride(0),
        backup_next_token_ids_ptr,
        backup_next_token_ids_ptr.stride(0),
        next_token_ids_ptr,
        next_token_ids_ptr.stride(0),
        valid_sampled_tokens_count_ptr,
        valid_sampled_tokens_count_ptr.stride(0),
        vocab_size,
        num_sampled_tokens_per_req,
        PADDED=triton.next_power_of_2(max(num_sampled_tokens_per_req, 1)),
        num_warps=1,
    )

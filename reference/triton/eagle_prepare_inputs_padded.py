"""eagle_prepare_inputs_padded: rejected = drafts + 1 - valid (0 without drafts), index = end - 1 - rejected.

One launch, with one lane per request.

Source: vLLM 0.33.0, eagle_prepare_inputs_padded_kernel.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def _prepare_kernel(
    cu_num_draft_tokens,
    cu_stride,
    valid_sampled_tokens_count,
    valid_stride,
    query_start_loc,
    query_stride,
    token_indices_to_sample,
    indices_stride,
    num_rejected_tokens,
    rejected_stride,
    num_reqs,
    BLOCK: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = request < num_reqs
    before = tl.load(cu_num_draft_tokens + (request - 1) * cu_stride, mask=mask & (request > 0), other=0).to(tl.int64)
    drafts = tl.load(cu_num_draft_tokens + request * cu_stride, mask=mask, other=0).to(tl.int64) - before
    valid = tl.load(valid_sampled_tokens_count + request * valid_stride, mask=mask, other=0).to(tl.int64)
    rejected = tl.where(drafts > 0, drafts + 1 - valid, 0)
    end = tl.load(query_start_loc + (request + 1) * query_stride, mask=mask, other=0).to(tl.int64)
    tl.store(token_indices_to_sample + request * indices_stride, end - 1 - rejected, mask=mask)
    tl.store(num_rejected_tokens + request * rejected_stride, rejected, mask=mask)


def eagle_prepare_inputs_padded(
    *,
    cu_num_draft_tokens_ptr: Any,
    valid_sampled_tokens_count_ptr: Any,
    query_start_loc_gpu_ptr: Any,
    token_indices_to_sample_ptr: Any,
    num_rejected_tokens_gpu_ptr: Any,
    num_reqs: int,
) -> None:
    if num_reqs == 0:
        return
    block = 128
    _prepare_kernel[(triton.cdiv(num_reqs, block),)](
        cu_num_draft_tokens_ptr,
        cu_num_draft_tokens_ptr.stride(0),
        valid_sampled_tokens_count_ptr,
        valid_sampled_tokens_count_ptr.stride(0),
        query_start_loc_gpu_ptr,
        query_start_loc_gpu_ptr.stride(0),
        token_indices_to_sample_ptr,
        token_indices_to_sample_ptr.stride(0),
        num_rejected_tokens_gpu_ptr,
        num_rejected_tokens_gpu_ptr.stride(0),
        num_reqs,
        BLOCK=block,
        num_warps=4,
    )

"""expand_batch_to_tokens: output[i] = input[b] for the draft tokens i of request b, one value replaced.

One launch, with one program per request and block of its tokens.

Source: vLLM 0.33.0, expand_kernel.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["replace_from", "replace_to"])
def _expand_kernel(
    output,
    output_stride,
    values,
    values_stride,
    cu_num_tokens,
    cu_stride,
    replace_from,
    replace_to,
    BLOCK: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    start = tl.load(cu_num_tokens + (request - 1) * cu_stride, mask=request > 0, other=0).to(tl.int64)
    end = tl.load(cu_num_tokens + request * cu_stride).to(tl.int64)
    token = start + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(values + request * values_stride)
    value = tl.where(value == replace_from, replace_to, value).to(output.dtype.element_ty)
    tl.store(output + token * output_stride, value, mask=token < end)


def expand_batch_to_tokens(
    *,
    output_ptr: Any,
    input_ptr: Any,
    cu_num_tokens_ptr: Any,
    replace_from: float,
    replace_to: float,
    MAX_NUM_TOKENS: int,
) -> None:
    requests = input_ptr.shape[0]
    if requests == 0:
        return
    # A float argument is a float32. Integers compare as integers, so that values above 2^24 stay exact.
    number = float if input_ptr.is_floating_point() else int
    if number is int and not (float(replace_from).is_integer() and abs(replace_from) < 2**63):
        # No integer equals it: a 0 that replaces 0 changes nothing.
        replace_from = replace_to = 0
    block = min(triton.next_power_of_2(MAX_NUM_TOKENS), 1024)
    _expand_kernel[(requests, triton.cdiv(MAX_NUM_TOKENS, block))](
        output_ptr,
        output_ptr.stride(0),
        input_ptr,
        input_ptr.stride(0),
        cu_num_tokens_ptr,
        cu_num_tokens_ptr.stride(0),
        number(replace_from),
        number(replace_to),
        BLOCK=block,
        num_warps=1,
    )

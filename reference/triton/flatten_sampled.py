"""flatten_sampled: flat[cu_num_logits[b] + i] = sampled[b, i] for i below num_sampled[b].

Source: vLLM 0.33.0, _flatten_sampled_kernel.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

MOST_STEPS = 256
"""Steps that a program copies at once: a kernel that holds thousands takes half a minute to compile."""


@triton.jit
def _flatten_kernel(
    flat_sampled,
    flat_stride,
    sampled,
    sampled_stride_0,
    sampled_stride_1,
    num_sampled,
    cu_num_logits,
    columns,
    BLOCK: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    first = tl.load(cu_num_logits + request).to(tl.int64)
    end = tl.load(cu_num_logits + request + 1).to(tl.int64)
    count = tl.minimum(tl.load(num_sampled + request).to(tl.int64), end - first)
    for start in range(0, columns, BLOCK):
        step = start + tl.arange(0, BLOCK).to(tl.int64)
        mask = (step < count) & (step < columns)
        tokens = tl.load(sampled + request * sampled_stride_0 + step * sampled_stride_1, mask=mask, other=0)
        tl.store(flat_sampled + (first + step) * flat_stride, tokens, mask=mask)


def flatten_sampled(*, flat_sampled: Any, sampled: Any, num_sampled: Any, cu_num_logits: Any) -> None:
    requests, columns = sampled.shape
    if requests == 0 or columns == 0:
        return
    _flatten_kernel[(requests,)](
        flat_sampled,
        flat_sampled.stride(0),
        sampled,
        *sampled.stride(),
        num_sampled.contiguous(),
        cu_num_logits.contiguous(),
        columns,
        BLOCK=min(triton.next_power_of_2(columns), MOST_STEPS),
        num_warps=1,
    )

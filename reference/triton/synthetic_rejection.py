"""synthetic_rejection: accept the draft token of step i while u_i < rates[i], then emit the target's token.

Source: vLLM 0.21.0, _synthetic_rejection_sample_kernel.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from .philox import acceptance_number


@triton.jit
def _accept_kernel(
    sampled,
    sampled_stride_0,
    sampled_stride_1,
    num_sampled,
    num_sampled_stride,
    target_sampled,
    draft_sampled,
    cu_num_logits,
    pos,
    idx_mapping,
    seed,
    acceptance_rates,
    rates,
):
    request = tl.program_id(0).to(tl.int64)
    state = tl.load(idx_mapping + request).to(tl.int64)
    if state < 0:
        return
    first = tl.load(cu_num_logits + request).to(tl.int64)
    drafts = tl.load(cu_num_logits + request + 1).to(tl.int64) - first - 1
    request_seed = tl.load(seed + state)
    sampled_row = sampled + request * sampled_stride_0
    step = tl.zeros((), tl.int64)
    verifying = drafts > 0
    while verifying:
        row = first + step
        draft = tl.load(draft_sampled + row + 1).to(tl.int64)
        rate = tl.load(acceptance_rates + step, mask=step < rates, other=0.0).to(tl.float64)
        accepted = (acceptance_number(request_seed, tl.load(pos + row), step) < rate) & (draft >= 0)
        if accepted:
            tl.store(sampled_row + step * sampled_stride_1, draft)
        step += accepted.to(tl.int64)
        verifying = accepted & (step < drafts)
    tl.store(sampled_row + step * sampled_stride_1, tl.load(target_sampled + first + step).to(tl.int64))
    tl.store(num_sampled + request * num_sampled_stride, step + 1)


def synthetic_rejection(
    *,
    sampled: Any,
    num_sampled: Any,
    target_sampled: Any,
    draft_sampled: Any,
    cu_num_logits: Any,
    pos: Any,
    idx_mapping: Any,
    seed: Any,
    acceptance_rates: Any,
) -> None:
    requests = idx_mapping.shape[0]
    if requests == 0:
        return
    _accept_kernel[(requests,)](
        sampled,
        *sampled.stride(),
        num_sampled,
        num_sampled.stride(0),
        target_sampled.contiguous(),
        draft_sampled.contiguous(),
        cu_num_logits.contiguous(),
        pos.contiguous(),
        idx_mapping.contiguous(),
        seed.contiguous(),
        acceptance_rates.contiguous(),
        acceptance_rates.shape[0],
        num_warps=1,
    )

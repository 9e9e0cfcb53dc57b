"""rejection_greedy_sample: emit the target's argmax while the draft tokens match, then the bonus token.

    accepted_i = (draft_i = argmax_i)          or, in synthetic mode, u_i < rates[i]

One launch, with one program per request.

Source: vLLM 0.33.0, rejection_greedy_sample_kernel.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def _greedy_kernel(
    output,
    output_stride_0,
    output_stride_1,
    cu_num_draft_tokens,
    draft_token_ids,
    target_argmax,
    bonus_token_ids,
    is_greedy,
    uniform_probs,
    rates,
    SYNTHETIC_MODE: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    if is_greedy is not None:  # noqa: SIM102 -- decided when the kernel is compiled
        if tl.load(is_greedy + request) == 0:
            return
    start = tl.load(cu_num_draft_tokens + request - 1, mask=request > 0, other=0).to(tl.int64)
    drafts = tl.load(cu_num_draft_tokens + request).to(tl.int64) - start
    row = output + request * output_stride_0
    step = tl.zeros((), tl.int64)
    verifying = drafts > 0
    all_accepted = drafts == 0
    while verifying:
        draft = tl.load(draft_token_ids + start + step).to(tl.int64)
        argmax = tl.load(target_argmax + start + step).to(tl.int64)
        if SYNTHETIC_MODE:
            u = tl.load(uniform_probs + start + step).to(tl.float64)
            accepted = (u < tl.load(rates + step).to(tl.float64)) & (draft >= 0)
            token = tl.where(accepted, draft, argmax)
        else:
            accepted = draft == argmax
            token = argmax
        tl.store(row + step * output_stride_1, token)
        step += 1
        all_accepted = accepted & (step == drafts)
        verifying = accepted & (step < drafts)
    if all_accepted:
        tl.store(row + drafts * output_stride_1, tl.load(bonus_token_ids + request).to(tl.int64))


def rejection_greedy_sample(
    *,
    output_token_ids_ptr: Any,
    cu_num_draft_tokens_ptr: Any,
    draft_token_ids_ptr: Any,
    target_argmax_ptr: Any,
    bonus_token_ids_ptr: Any,
    is_greedy_ptr: Any,
    max_spec_len: int,
    uniform_probs_ptr: Any,
    synthetic_conditional_rates_ptr: Any,
    SYNTHETIC_MODE: bool,
) -> None:
    requests = cu_num_draft_tokens_ptr.shape[0]
    if requests == 0:
        return
    _greedy_kernel[(requests,)](
        output_token_ids_ptr,
        *output_token_ids_ptr.stride(),
        cu_num_draft_tokens_ptr.contiguous(),
        draft_token_ids_ptr.contiguous(),
        target_argmax_ptr.contiguous(),
        bonus_token_ids_ptr.contiguous(),
        None if is_greedy_ptr is None else is_greedy_ptr.contiguous(),
        uniform_probs_ptr.contiguous() if SYNTHETIC_MODE else None,
        synthetic_conditional_rates_ptr.contiguous() if SYNTHETIC_MODE else None,
        SYNTHETIC_MODE=SYNTHETIC_MODE,
        num_warps=1,
    )

"""rejection_random_sample: accept draft tokens while q > 0 and p / q >= u, then the recovered or bonus token.

Without draft probabilities q is 1. In synthetic mode a draft token is accepted while u < rates[step].

One launch, with one program per request.

Source: Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1; vLLM 0.33.0, rejection_random_sample_kernel.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def _random_kernel(
    output,
    output_stride_0,
    output_stride_1,
    cu_num_draft_tokens,
    draft_token_ids,
    draft_probs,
    draft_stride_0,
    draft_stride_1,
    target_probs,
    target_stride_0,
    target_stride_1,
    bonus_token_ids,
    recovered_token_ids,
    uniform_probs,
    is_greedy,
    rates,
    vocab_size,
    NO_DRAFT_PROBS: tl.constexpr,
    SYNTHETIC_MODE: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    if tl.load(is_greedy + request) != 0:
        return
    start = tl.load(cu_num_draft_tokens + request - 1, mask=request > 0, other=0).to(tl.int64)
    drafts = tl.load(cu_num_draft_tokens + request).to(tl.int64) - start
    row = output + request * output_stride_0
    step = tl.zeros((), tl.int64)
    verifying = drafts > 0
    all_accepted = drafts == 0
    while verifying:
        token = start + step
        draft = tl.load(draft_token_ids + token).to(tl.int64)
        accepted = (draft >= 0) & (draft < vocab_size)
        if accepted:
            u = tl.load(uniform_probs + token).to(tl.float64)
            if SYNTHETIC_MODE:
                accepted = u < tl.load(rates + step).to(tl.float64)
            else:
                p = tl.load(target_probs + token * target_stride_0 + draft * target_stride_1).to(tl.float32)
                if NO_DRAFT_PROBS:
                    accepted = p.to(tl.float64) >= u
                else:
                    q = tl.load(draft_probs + token * draft_stride_0 + draft * draft_stride_1).to(tl.float32)
                    accepted = (q > 0.0) & (p.to(tl.float64) / q.to(tl.float64) >= u)
        if accepted:
            tl.store(row + step * output_stride_1, draft)
        else:
            tl.store(row + step * output_stride_1, tl.load(recovered_token_ids + token).to(tl.int64))
        step += 1
        all_accepted = accepted & (step == drafts)
        verifying = accepted & (step < drafts)
    if all_accepted:
        tl.store(row + drafts * output_stride_1, tl.load(bonus_token_ids + request).to(tl.int64))


def rejection_random_sample(
    *,
    output_token_ids_ptr: Any,
    cu_num_draft_tokens_ptr: Any,
    draft_token_ids_ptr: Any,
    draft_probs_ptr: Any,
    target_probs_ptr: Any,
    bonus_token_ids_ptr: Any,
    recovered_token_ids_ptr: Any,
    uniform_probs_ptr: Any,
    is_greedy_ptr: Any,
    max_spec_len: int,
    vocab_size: int,
    synthetic_conditional_rates_ptr: Any,
    NO_DRAFT_PROBS: bool,
    SYNTHETIC_MODE: bool,
) -> None:
    requests = cu_num_draft_tokens_ptr.shape[0]
    if requests == 0:
        return
    _random_kernel[(requests,)](
        output_token_ids_ptr,
        *output_token_ids_ptr.stride(),
        cu_num_draft_tokens_ptr.contiguous(),
        draft_token_ids_ptr.contiguous(),
        None if NO_DRAFT_PROBS else draft_probs_ptr,
        *((0, 0) if NO_DRAFT_PROBS else draft_probs_ptr.stride()),
        target_probs_ptr,
        *target_probs_ptr.stride(),
        bonus_token_ids_ptr.contiguous(),
        recovered_token_ids_ptr.contiguous(),
        uniform_probs_ptr.contiguous(),
        is_greedy_ptr.contiguous(),
        synthetic_conditional_rates_ptr.contiguous() if SYNTHETIC_MODE else None,
        vocab_size,
        NO_DRAFT_PROBS=NO_DRAFT_PROBS,
        SYNTHETIC_MODE=SYNTHETIC_MODE,
        num_warps=1,
    )

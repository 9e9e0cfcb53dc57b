"""probabilistic_rejection: accept a draft x of row i while

    log p_i(x) > log u_i + log q_i(x)          or, at temperature 0, while x = argmax p_i

Two launches: block statistics of the draft rows, then one program a request that walks its drafts and
stops at the first rejection.

Source: Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ._logits import load_logits
from ._request_state import (
    RowStats,
    accept_while_argmax,
    draft_strides,
    log_prob,
    row_logsumexp,
)
from .philox import acceptance_number


@triton.jit
def _accept_kernel(
    sampled,
    sampled_stride_0,
    sampled_stride_1,
    num_accepted,
    num_accepted_stride,
    target_logsumexp,
    target_logsumexp_stride,
    draft_logsumexp,
    draft_logsumexp_stride,
    target_logits,
    target_stride_0,
    target_stride_1,
    draft_logits,
    draft_stride_0,
    draft_stride_1,
    draft_stride_2,
    draft_steps,
    draft_sampled,
    cu_num_logits,
    pos,
    idx_mapping,
    temperature,
    seed,
    target_max,
    target_sum,
    target_argmax,
    draft_max,
    draft_sum,
    blocks,
    vocabulary,
    HAS_DRAFT_LOGITS: tl.constexpr,
    PADDED: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    state = tl.load(idx_mapping + request).to(tl.int64)
    if state < 0:
        return
    first = tl.load(cu_num_logits + request).to(tl.int64)
    drafts = tl.load(cu_num_logits + request + 1).to(tl.int64) - first - 1
    temp = tl.load(temperature + state)
    sampled_row = sampled + request * sampled_stride_0
    if temp == 0.0:
        step = accept_while_argmax(
            sampled_row, sampled_stride_1, draft_sampled, first, drafts, target_max, target_argmax, blocks, PADDED
        )
        tl.store(num_accepted + request * num_accepted_stride, step)
        return
    request_seed = tl.load(seed + state)
    step = tl.zeros((), tl.int64)
    verifying = drafts > 0
    while verifying:
        row = first + step
        draft = tl.load(draft_sampled + row + 1).to(tl.int64)
        accepted = (draft >= 0) & (draft < vocabulary) & (step < draft_steps)
        if accepted:
            target_lse = row_logsumexp(target_max, target_sum, row, blocks, PADDED)
            log_p = log_prob(
                load_logits(target_logits + row * target_stride_0, target_stride_1, draft, True), target_lse
            )
            draft_lse = 0.0
            log_q = 0.0
            if HAS_DRAFT_LOGITS:
                draft_lse = row_logsumexp(draft_max, draft_sum, row, blocks, PADDED)
                draft_row = draft_logits + state * draft_stride_0 + step * draft_stride_1
                log_q = log_prob(load_logits(draft_row, draft_stride_2, draft, True) / temp, draft_lse)
            u = acceptance_number(request_seed, tl.load(pos + row), step).to(tl.float32)
            accepted = log_p > tl.log(u) + log_q
            if accepted:
                tl.store(sampled_row + step * sampled_stride_1, draft)
            else:
                tl.store(target_logsumexp + request * target_logsumexp_stride, target_lse)
                tl.store(draft_logsumexp + request * draft_logsumexp_stride, draft_lse)
        step += accepted.to(tl.int64)
        verifying = accepted & (step < drafts)
    tl.store(num_accepted + request * num_accepted_stride, step)


def probabilistic_rejection(
    *,
    sampled: Any,
    num_accepted: Any,
    target_logsumexp: Any,
    draft_logsumexp: Any,
    target_logits: Any,
    draft_logits: Any,
    draft_sampled: Any,
    cu_num_logits: Any,
    pos: Any,
    idx_mapping: Any,
    expanded_idx_mapping: Any,
    expanded_local_pos: Any,
    temperature: Any,
    seed: Any,
) -> None:
    requests = idx_mapping.shape[0]
    if requests == 0:
        return
    stats = RowStats(target_logits, draft_logits, expanded_idx_mapping, expanded_local_pos, temperature)
    _accept_kernel[(requests,)](
        sampled,
        *sampled.stride(),
        num_accepted,
        num_accepted.stride(0),
        target_logsumexp,
        target_logsumexp.stride(0),
        draft_logsumexp,
        draft_logsumexp.stride(0),
        target_logits,
        *target_logits.stride(),
        draft_logits,
        *draft_strides(draft_logits),
        stats.steps,
        draft_sampled.contiguous(),
        cu_num_logits.contiguous(),
        pos.contiguous(),
        idx_mapping.contiguous(),
        temperature.contiguous(),
        seed.contiguous(),
        stats.target_max,
        stats.target_sum,
        stats.target_argmax,
        stats.draft_max,
        stats.draft_sum,
        stats.blocks,
        stats.vocabulary,
        HAS_DRAFT_LOGITS=draft_logits is not None,
        PADDED=stats.padded,
        num_warps=1,
    )

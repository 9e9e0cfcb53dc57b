"""block_verification: accept the longest prefix of drafts whose u is at most its threshold,

    r[0] = 1,  r[i] = min(r[i - 1] p[i] / q[i], 1)                 at the drafts
    m[i] = sum over x of max(r[i] p(x) - q(x), 0)                  at the row after draft i
    h[i] = m[i] / (m[i] + 1 - r[i]),  and r[i] for the whole block

Four launches, each needing all of the one before: block statistics of the draft rows; the ratios, a
program a request; the masses, in blocks of the vocabulary; the acceptance, a program a request.

Source: Sun et al. 2024, Block verification accelerates speculative decoding (arXiv 2403.10444),
algorithm 2.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ._logits import exp, load_logits
from ._request_state import (
    STATS_BLOCK,
    RowStats,
    accept_while_argmax,
    draft_strides,
    is_draft_row,
    log_prob,
    row_logsumexp,
)
from .philox import acceptance_number

PAST: tl.constexpr = tl.constexpr(1.0)
"""Stands for the log ratio of a row past the end of its block; real ones are at most 0."""


@triton.jit
def _ratio_kernel(
    log_ratio,
    log_p_draft,
    target_lse,
    draft_lse,
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
    idx_mapping,
    temperature,
    target_max,
    target_sum,
    draft_max,
    draft_sum,
    blocks,
    vocabulary,
    HAS_DRAFT_LOGITS: tl.constexpr,
    PADDED: tl.constexpr,
):
    """log r and log p at the draft of every row, and the rows' normalisers.

    The ratios from a placeholder on are PAST.
    """
    request = tl.program_id(0).to(tl.int64)
    state = tl.load(idx_mapping + request).to(tl.int64)
    if state < 0:
        return
    temp = tl.load(temperature + state)
    if temp == 0.0:
        return
    first = tl.load(cu_num_logits + request).to(tl.int64)
    end = tl.load(cu_num_logits + request + 1).to(tl.int64)
    log_r = tl.zeros((), tl.float32)
    in_block = end > first
    row = first
    while row < end - 1:
        draft = tl.load(draft_sampled + row + 1).to(tl.int64)
        is_valid = (draft >= 0) & (draft < vocabulary) & (row - first < draft_steps)
        draft = tl.where(is_valid, draft, 0)
        target_row_lse = row_logsumexp(target_max, target_sum, row, blocks, PADDED)
        target = load_logits(target_logits + row * target_stride_0, target_stride_1, draft, True)
        log_p = log_prob(target, target_row_lse)
        log_q = 0.0
        if HAS_DRAFT_LOGITS:
            draft_row_lse = row_logsumexp(draft_max, draft_sum, row, blocks, PADDED)
            draft_row = draft_logits + state * draft_stride_0 + (row - first) * draft_stride_1
            log_q = log_prob(load_logits(draft_row, draft_stride_2, draft, is_valid) / temp, draft_row_lse)
            tl.store(draft_lse + row, draft_row_lse)
        tl.store(target_lse + row, target_row_lse)
        tl.store(log_p_draft + row, log_p)
        # Zero stays zero, also where q is zero.
        is_zero = (log_p == float("-inf")) | (log_r == float("-inf"))
        log_r = tl.where(is_zero, float("-inf"), tl.minimum(log_r + log_p - log_q, 0.0))
        in_block = in_block & is_valid
        tl.store(log_ratio + row, tl.where(in_block, log_r, PAST))
        row += 1


@triton.jit
def _mass_kernel(
    mass,
    log_ratio,
    target_lse,
    draft_lse,
    target_logits,
    target_stride_0,
    target_stride_1,
    draft_logits,
    draft_stride_0,
    draft_stride_1,
    draft_stride_2,
    draft_steps,
    expanded_idx_mapping,
    expanded_local_pos,
    temperature,
    rows,
    vocabulary,
    BLOCK: tl.constexpr,
):
    """A block's part of the mass of max(r p - q, 0), at every draft row after a request's first."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    state = tl.load(expanded_idx_mapping + row).to(tl.int64)
    if state < 0:
        return
    step = tl.load(expanded_local_pos + row).to(tl.int64)
    if (step == 0) | (step >= draft_steps):
        return
    if not is_draft_row(expanded_idx_mapping, expanded_local_pos, row, rows):
        return
    temp = tl.load(temperature + state)
    if temp == 0.0:
        return
    ids = block * BLOCK + tl.arange(0, BLOCK)
    mask = ids < vocabulary
    ratio = exp(tl.load(log_ratio + row - 1))
    draft_row = draft_logits + state * draft_stride_0 + step * draft_stride_1
    target = load_logits(target_logits + row * target_stride_0, target_stride_1, ids, mask)
    p = exp(log_prob(target, tl.load(target_lse + row)))
    q = exp(log_prob(load_logits(draft_row, draft_stride_2, ids, mask) * (1.0 / temp), tl.load(draft_lse + row)))
    tl.store(mass + row * tl.num_programs(1) + block, tl.sum(tl.maximum(ratio * p - q, 0.0), axis=0))


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
    log_prefix_ratio,
    log_prefix_ratio_stride,
    draft_sampled,
    cu_num_logits,
    pos,
    idx_mapping,
    temperature,
    seed,
    log_ratio,
    log_p_draft,
    target_lse,
    draft_lse,
    mass,
    target_max,
    target_argmax,
    blocks,
    HAS_DRAFT_LOGITS: tl.constexpr,
    PADDED: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    state = tl.load(idx_mapping + request).to(tl.int64)
    if state < 0:
        return
    first = tl.load(cu_num_logits + request).to(tl.int64)
    drafts = tl.load(cu_num_logits + request + 1).to(tl.int64) - first - 1
    sampled_row = sampled + request * sampled_stride_0
    accepted_out = num_accepted + request * num_accepted_stride
    if tl.load(temperature + state) == 0.0:
        accepted = accept_while_argmax(
            sampled_row, sampled_stride_1, draft_sampled, first, drafts, target_max, target_argmax, blocks, PADDED
        )
        tl.store(accepted_out, accepted)
        return
    request_seed = tl.load(seed + state)
    accepted = tl.zeros((), tl.int64)
    length = tl.zeros((), tl.int64)
    step = tl.zeros((), tl.int64)
    while step < drafts:
        row = first + step
        log_r = tl.load(log_ratio + row)
        if log_r <= 0.0:
            length = step + 1
            ratio = tl.exp(log_r)
            threshold = ratio
            next_ratio = tl.load(log_ratio + row + 1, mask=step + 1 < drafts, other=PAST)
            if next_ratio <= 0.0:
                if HAS_DRAFT_LOGITS:
                    offsets = tl.arange(0, PADDED)
                    parts = tl.load(mass + (row + 1) * blocks + offsets, mask=offsets < blocks, other=0.0)
                    total = tl.sum(parts, axis=0)
                else:
                    total = ratio * (1.0 - tl.exp(tl.load(log_p_draft + row + 1)))
                rest = total + 1.0 - ratio
                threshold = tl.where(rest > 0.0, total / tl.where(rest > 0.0, rest, 1.0), 1.0)
            u = acceptance_number(request_seed, tl.load(pos + row), step)
            accepted = tl.where(u <= threshold, step + 1, accepted)
        step += 1
    step = tl.zeros((), tl.int64)
    while step < accepted:
        draft = tl.load(draft_sampled + first + step + 1).to(tl.int64)
        tl.store(sampled_row + step * sampled_stride_1, draft)
        step += 1
    tl.store(accepted_out, accepted)
    if accepted < length:
        row = first + accepted
        log_r = tl.load(log_ratio + row - 1, mask=accepted > 0, other=0.0)
        tl.store(log_prefix_ratio + request * log_prefix_ratio_stride, log_r)
        tl.store(target_logsumexp + request * target_logsumexp_stride, tl.load(target_lse + row))
        row_draft_lse = 0.0
        if HAS_DRAFT_LOGITS:
            row_draft_lse = tl.load(draft_lse + row)
        tl.store(draft_logsumexp + request * draft_logsumexp_stride, row_draft_lse)


def block_verification(
    *,
    sampled: Any,
    num_accepted: Any,
    target_logsumexp: Any,
    draft_logsumexp: Any,
    log_prefix_ratio: Any,
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
    requests, rows = idx_mapping.shape[0], target_logits.shape[0]
    if requests == 0:
        return
    stats = RowStats(target_logits, draft_logits, expanded_idx_mapping, expanded_local_pos, temperature)
    has_draft_logits = draft_logits is not None
    draft_sampled, cu_num_logits = draft_sampled.contiguous(), cu_num_logits.contiguous()
    idx_mapping, temperature = idx_mapping.contiguous(), temperature.contiguous()
    scratch = torch.empty((4, rows), dtype=torch.float32, device=target_logits.device)
    log_ratio, log_p_draft, target_lse, draft_lse = scratch.unbind()
    _ratio_kernel[(requests,)](
        log_ratio,
        log_p_draft,
        target_lse,
        draft_lse,
        target_logits,
        *target_logits.stride(),
        draft_logits,
        *draft_strides(draft_logits),
        stats.steps,
        draft_sampled,
        cu_num_logits,
        idx_mapping,
        temperature,
        stats.target_max,
        stats.target_sum,
        stats.draft_max,
        stats.draft_sum,
        stats.blocks,
        stats.vocabulary,
        HAS_DRAFT_LOGITS=has_draft_logits,
        PADDED=stats.padded,
        num_warps=1,
    )
    mass = torch.empty_like(stats.target_sum)
    if has_draft_logits and rows > 0:
        _mass_kernel[(rows, stats.blocks)](
            mass,
            log_ratio,
            target_lse,
            draft_lse,
            target_logits,
            *target_logits.stride(),
            draft_logits,
            *draft_strides(draft_logits),
            stats.steps,
            expanded_idx_mapping.contiguous(),
            expanded_local_pos.contiguous(),
            temperature,
            rows,
            stats.vocabulary,
            BLOCK=STATS_BLOCK,
        )
    _accept_kernel[(requests,)](
        sampled,
        *sampled.stride(),
        num_accepted,
        num_accepted.stride(0),
        target_logsumexp,
        target_logsumexp.stride(0),
        draft_logsumexp,
        draft_logsumexp.stride(0),
        log_prefix_ratio,
        log_prefix_ratio.stride(0),
        draft_sampled,
        cu_num_logits,
        pos.contiguous(),
        idx_mapping,
        temperature,
        seed.contiguous(),
        log_ratio,
        log_p_draft,
        target_lse,
        draft_lse,
        mass,
        stats.target_max,
        stats.target_argmax,
        stats.blocks,
        HAS_DRAFT_LOGITS=has_draft_logits,
        PADDED=stats.padded,
        num_warps=1,
    )

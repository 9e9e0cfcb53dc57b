"""block_verification: accept the longest prefix of draft tokens whose u is at most its threshold,

    r[0] = 1,  r[i] = min(r[i - 1] p[i] / q[i], 1)                 at the draft tokens
    m[i] = sum over x of max(r[i] p(x) - q(x), 0)                  at the row after draft token i
    h[i] = m[i] / (m[i] + 1 - r[i]),  and r[i] for the whole block

Four launches, each of which needs all results of the previous one:

- block statistics of the draft rows;
- the ratios, with one program per request;
- the masses, with one program per block of the vocabulary;
- the acceptance, with one program per request.

Source: Sun et al. 2024, Block verification accelerates speculative decoding (arXiv 2403.10444), algorithm 2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ._launches import UNFUSED
from ._logits import exp
from ._request_state import (
    STATS_BLOCK,
    accept_while_argmax,
    batch_of,
    decision_of,
    draft_log_probs,
    draft_of,
    is_draft_row,
    load_draft,
    load_target,
    log_prob,
    row_stats,
    rows_of,
    shared_vocabulary,
    store_normalisers,
    target_of,
)
from .philox import acceptance_number

PAST: tl.constexpr = tl.constexpr(1.0)
"""Marks the log ratio of a row past the end of its block; real log ratios are at most 0."""


class Ratios(NamedTuple):
    """Per row: log r and log p at its draft token, and both normalisers."""

    log_ratio: Any
    log_p_draft: Any
    target_lse: Any
    draft_lse: Any


@triton.jit
def _ratio_kernel(ratios, stats, target, draft, batch, vocabulary, PADDED: tl.constexpr):
    """Compute the ratios of a request; from a padding token on they are PAST."""
    request = tl.program_id(0).to(tl.int64)
    state = tl.load(batch.idx_mapping + request).to(tl.int64)
    if state < 0:
        return
    temp = tl.load(batch.temperature + state)
    if temp == 0.0:
        return
    first = tl.load(batch.cu_num_logits + request).to(tl.int64)
    end = tl.load(batch.cu_num_logits + request + 1).to(tl.int64)
    log_r = tl.zeros((), tl.float32)
    in_block = end > first
    row = first
    while row < end - 1:
        token = tl.load(batch.draft_sampled + row + 1).to(tl.int64)
        is_valid = (token >= 0) & (token < vocabulary) & (row - first < draft.steps)
        token = tl.where(is_valid, token, 0)
        log_p, log_q, target_lse, draft_lse = draft_log_probs(
            stats, target, draft, state, row - first, row, token, is_valid, temp, PADDED
        )
        tl.store(ratios.target_lse + row, target_lse)
        tl.store(ratios.draft_lse + row, draft_lse)
        tl.store(ratios.log_p_draft + row, log_p)
        # Zero stays zero, even if q is zero.
        is_zero = (log_p == float("-inf")) | (log_r == float("-inf"))
        log_r = tl.where(is_zero, float("-inf"), tl.minimum(log_r + log_p - log_q, 0.0))
        in_block = in_block & is_valid
        tl.store(ratios.log_ratio + row, tl.where(in_block, log_r, PAST))
        row += 1


@triton.jit
def _mass_kernel(mass, ratios, target, draft, rows, temperature, vocabulary, BLOCK: tl.constexpr):
    """Compute a block's part of the mass of max(r p - q, 0), at every draft row after a request's first."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    state = tl.load(rows.idx_mapping + row).to(tl.int64)
    if state < 0:
        return
    step = tl.load(rows.local_pos + row).to(tl.int64)
    if (step == 0) | (step >= draft.steps):
        return
    if not is_draft_row(rows, row):
        return
    temp = tl.load(temperature + state)
    if temp == 0.0:
        return
    ids = block * BLOCK + tl.arange(0, BLOCK)
    mask = ids < vocabulary
    ratio = exp(tl.load(ratios.log_ratio + row - 1))
    p = exp(log_prob(load_target(target, row, ids, mask), tl.load(ratios.target_lse + row)))
    q = exp(log_prob(load_draft(draft, state, step, ids, mask, temp), tl.load(ratios.draft_lse + row)))
    tl.store(mass + row * tl.num_programs(1) + block, tl.sum(tl.maximum(ratio * p - q, 0.0), axis=0))


@triton.jit
def _accept_kernel(
    decision,
    log_prefix_ratio,
    log_prefix_ratio_stride,
    ratios,
    mass,
    stats,
    batch,
    HAS_DRAFT_LOGITS: tl.constexpr,
    PADDED: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    state = tl.load(batch.idx_mapping + request).to(tl.int64)
    if state < 0:
        return
    first = tl.load(batch.cu_num_logits + request).to(tl.int64)
    drafts = tl.load(batch.cu_num_logits + request + 1).to(tl.int64) - first - 1
    if tl.load(batch.temperature + state) == 0.0:
        accept_while_argmax(decision, stats, batch, request, first, drafts, PADDED)
        return
    request_seed = tl.load(batch.seed + state)
    accepted = tl.zeros((), tl.int64)
    length = tl.zeros((), tl.int64)
    step = tl.zeros((), tl.int64)
    while step < drafts:
        row = first + step
        log_r = tl.load(ratios.log_ratio + row)
        if log_r <= 0.0:
            length = step + 1
            ratio = exp(log_r)
            threshold = ratio
            next_ratio = tl.load(ratios.log_ratio + row + 1, mask=step + 1 < drafts, other=PAST)
            if next_ratio <= 0.0:
                if HAS_DRAFT_LOGITS:
                    offsets = tl.arange(0, PADDED)
                    parts = mass + (row + 1) * stats.blocks + offsets
                    total = tl.sum(tl.load(parts, mask=offsets < stats.blocks, other=0.0), axis=0)
                else:
                    total = ratio * (1.0 - exp(tl.load(ratios.log_p_draft + row + 1)))
                rest = total + 1.0 - ratio
                threshold = tl.where(rest > 0.0, total / tl.where(rest > 0.0, rest, 1.0), 1.0)
            u = acceptance_number(request_seed, tl.load(batch.pos + row), step)
            accepted = tl.where(u <= threshold, step + 1, accepted)
        step += 1
    sampled = decision.sampled + request * decision.sampled_stride_0
    step = tl.zeros((), tl.int64)
    while step < accepted:
        token = tl.load(batch.draft_sampled + first + step + 1).to(tl.int64)
        tl.store(sampled + step * decision.sampled_stride_1, token)
        step += 1
    tl.store(decision.num_accepted + request * decision.num_accepted_stride, accepted)
    if accepted < length:
        row = first + accepted
        log_r = tl.load(ratios.log_ratio + row - 1, mask=accepted > 0, other=0.0)
        tl.store(log_prefix_ratio + request * log_prefix_ratio_stride, log_r)
        store_normalisers(decision, request, tl.load(ratios.target_lse + row), tl.load(ratios.draft_lse + row))


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
    requests = idx_mapping.shape[0]
    if requests == 0:
        return
    target, draft = target_of(target_logits), draft_of(draft_logits)
    batch = batch_of(draft_sampled, cu_num_logits, pos, idx_mapping, temperature, seed)
    vocabulary = shared_vocabulary(target_logits, draft_logits)
    rows = rows_of(expanded_idx_mapping, expanded_local_pos)
    stats = row_stats(target, draft, rows, batch.temperature, vocabulary)
    padded = triton.next_power_of_2(stats.blocks)
    ratios = Ratios(*torch.empty((4, rows.count), dtype=torch.float32, device=target_logits.device).unbind())
    _ratio_kernel[(requests,)](ratios, stats, target, draft, batch, vocabulary, PADDED=padded, num_warps=1, **UNFUSED)
    mass = torch.empty_like(stats.target_sum)
    if draft_logits is not None and rows.count > 0:
        _mass_kernel[(rows.count, stats.blocks)](
            mass, ratios, target, draft, rows, batch.temperature, vocabulary, BLOCK=STATS_BLOCK, num_warps=4
        )
    _accept_kernel[(requests,)](
        decision_of(sampled, num_accepted, target_logsumexp, draft_logsumexp),
        log_prefix_ratio,
        log_prefix_ratio.stride(0),
        ratios,
        mass,
        stats,
        batch,
        HAS_DRAFT_LOGITS=draft_logits is not None,
        PADDED=padded,
        num_warps=1,
    )

"""Helpers shared by the kernels of the slot-indexed family: grouped arguments, row statistics, scratch.

One program per block reduces a row of logits to a maximum and a sum of exponentials, or to an argmax for a greedy
request. The program of a request combines the blocks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ._logits import block_argmax, exp, load_logits

STATS_BLOCK = 4096


class TargetLogits(NamedTuple):
    """Target logits: [rows, V]."""

    logits: Any
    row_stride: Any
    id_stride: Any


class DraftLogits(NamedTuple):
    """Draft logits before temperature: [states, steps, V], or None for one-hot drafts."""

    logits: Any
    state_stride: Any
    step_stride: Any
    id_stride: Any
    steps: Any
    """Steps per state; any number for one-hot drafts."""


class StepBatch(NamedTuple):
    """The requests of a step, and temperature and seed of their states."""

    draft_sampled: Any
    cu_num_logits: Any
    pos: Any
    idx_mapping: Any
    temperature: Any
    seed: Any


class TargetRows(NamedTuple):
    """State and step that each target row verifies."""

    idx_mapping: Any
    local_pos: Any
    count: Any


class Stats(NamedTuple):
    """Statistics of every draft row and block: [rows, blocks]."""

    target_max: Any
    target_sum: Any
    target_argmax: Any
    draft_max: Any
    draft_sum: Any
    blocks: Any


class Verification(NamedTuple):
    """Result of a verification per request; the normalisers are set only after a rejection."""

    sampled: Any
    sampled_stride_0: Any
    sampled_stride_1: Any
    num_accepted: Any
    num_accepted_stride: Any
    target_logsumexp: Any
    target_logsumexp_stride: Any
    draft_logsumexp: Any
    draft_logsumexp_stride: Any


def target_of(logits: Any) -> TargetLogits:
    """Return the target logits with their strides."""
    return TargetLogits(logits, *logits.stride())


def draft_of(logits: Any) -> DraftLogits:
    """Return the draft logits with their strides; None means one-hot drafts."""
    if logits is None:
        return DraftLogits(None, 0, 0, 0, 2**31 - 1)
    state_stride, step_stride, id_stride = logits.stride()
    return DraftLogits(logits, state_stride, step_stride, id_stride, logits.shape[1])


def shared_vocabulary(target_logits: Any, draft_logits: Any) -> int:
    """Return the number of ids that target and draft share."""
    width: int = target_logits.shape[1]
    return width if draft_logits is None else min(width, draft_logits.shape[2])


def batch_of(*tensors: Any) -> StepBatch:
    """Return the batch, with every tensor contiguous."""
    return StepBatch(*(tensor.contiguous() for tensor in tensors))


def rows_of(expanded_idx_mapping: Any, expanded_local_pos: Any) -> TargetRows:
    """Return the rows, with every tensor contiguous."""
    return TargetRows(expanded_idx_mapping.contiguous(), expanded_local_pos.contiguous(), expanded_idx_mapping.shape[0])


def decision_of(sampled: Any, num_accepted: Any, target_logsumexp: Any, draft_logsumexp: Any) -> Verification:
    """Return the outputs of a verification with their strides."""
    per_request = (num_accepted, target_logsumexp, draft_logsumexp)
    return Verification(sampled, *sampled.stride(), *(part for t in per_request for part in (t, t.stride(0))))


@triton.jit
def load_target(target, row, ids, mask):
    """Load logits of a target row."""
    return load_logits(target.logits + row * target.row_stride, target.id_stride, ids, mask)


@triton.jit
def load_draft(draft, state, step, ids, mask, temperature):
    """Load logits of a draft step, divided by the temperature: one division, then multiplications."""
    row = draft.logits + state * draft.state_stride + step * draft.step_stride
    return load_logits(row, draft.id_stride, ids, mask) * (1.0 / temperature)


@triton.jit
def is_draft_row(rows, row):
    """Return True if the row verifies a draft token: the next row exists, is not padding and starts no request."""
    # These loads do not depend on each other.
    has_next = row + 1 < rows.count
    next_pos = tl.load(rows.local_pos + row + 1, mask=has_next, other=0)
    next_state = tl.load(rows.idx_mapping + row + 1, mask=has_next, other=-1)
    return (next_pos != 0) & (next_state >= 0)


@triton.jit
def block_sum(logits):
    """Return the maximum of a block and the sum of exponentials relative to it."""
    top = tl.max(logits, axis=0)
    return top, tl.sum(exp(logits - tl.where(top == float("-inf"), 0.0, top)), axis=0)


@triton.jit
def _stats_kernel(stats, target, draft, rows, temperature, vocabulary, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    state = tl.load(rows.idx_mapping + row).to(tl.int64)
    if (state < 0) | (not is_draft_row(rows, row)):
        return
    ids = block * BLOCK + tl.arange(0, BLOCK)
    mask = ids < vocabulary
    out = row * stats.blocks + block
    logits = load_target(target, row, ids, mask)
    temp = tl.load(temperature + state)
    if temp == 0.0:
        top, index = block_argmax(logits, BLOCK)
        tl.store(stats.target_max + out, top)
        tl.store(stats.target_argmax + out, block * BLOCK + index)
        return
    top, total = block_sum(logits)
    tl.store(stats.target_max + out, top)
    tl.store(stats.target_sum + out, total)
    if draft.logits is not None:
        step = tl.load(rows.local_pos + row).to(tl.int64)
        if step < draft.steps:
            top, total = block_sum(load_draft(draft, state, step, ids, mask, temp))
            tl.store(stats.draft_max + out, top)
            tl.store(stats.draft_sum + out, total)


def row_stats(target: TargetLogits, draft: DraftLogits, rows: TargetRows, temperature: Any, vocabulary: int) -> Stats:
    """Compute the block statistics of every draft row, as scratch on the device of the logits."""
    device, blocks = target.logits.device, triton.cdiv(vocabulary, STATS_BLOCK)
    target_max, target_sum, draft_max, draft_sum = torch.empty((4, rows.count, blocks), device=device).unbind()
    target_argmax = torch.empty((rows.count, blocks), dtype=torch.int32, device=device)
    stats = Stats(target_max, target_sum, target_argmax, draft_max, draft_sum, blocks)
    if rows.count > 0:
        _stats_kernel[(rows.count, blocks)](
            stats, target, draft, rows, temperature, vocabulary, BLOCK=STATS_BLOCK, num_warps=4
        )
    return stats


@triton.jit
def row_logsumexp(maxima, sums, row, blocks, PADDED: tl.constexpr):
    """Return log(sum(exp(row))) from its blocks; minus infinity for a row without any probability."""
    offsets = tl.arange(0, PADDED)
    mask = offsets < blocks
    tops = tl.load(maxima + row * blocks + offsets, mask=mask, other=float("-inf"))
    totals = tl.load(sums + row * blocks + offsets, mask=mask, other=0.0)
    top = tl.max(tops, axis=0)
    base = tl.where(top == float("-inf"), 0.0, top)
    return top + tl.log(tl.maximum(tl.sum(totals * exp(tops - base), axis=0), 1.1754943508222875e-38))


@triton.jit
def log_prob(logit, logsumexp):
    """Return log p; minus infinity in a row without any probability."""
    return tl.where(logsumexp == float("-inf"), float("-inf"), logit - logsumexp)


@triton.jit
def draft_log_probs(stats, target, draft, state, step, row, token, mask, temperature, PADDED: tl.constexpr):
    """Return log p and log q of a draft token and both normalisers; q counts as 1 for one-hot drafts."""
    target_lse = row_logsumexp(stats.target_max, stats.target_sum, row, stats.blocks, PADDED)
    log_p = log_prob(load_target(target, row, token, True), target_lse)
    draft_lse = tl.zeros((), tl.float32)
    log_q = tl.zeros((), tl.float32)
    if draft.logits is not None:
        draft_lse = row_logsumexp(stats.draft_max, stats.draft_sum, row, stats.blocks, PADDED)
        log_q = log_prob(load_draft(draft, state, step, token, mask, temperature), draft_lse)
    return log_p, log_q, target_lse, draft_lse


@triton.jit
def row_argmax(stats, row, PADDED: tl.constexpr):
    """Return the argmax of a row from its blocks, the lowest id for equal maxima."""
    offsets = tl.arange(0, PADDED)
    tops = tl.load(stats.target_max + row * stats.blocks + offsets, mask=offsets < stats.blocks, other=float("-inf"))
    return tl.load(stats.target_argmax + row * stats.blocks + tl.argmax(tops, axis=0)).to(tl.int64)


@triton.jit
def accept_while_argmax(decision, stats, batch, request, first, drafts, PADDED: tl.constexpr):
    """Store draft tokens while they equal the argmax, else the argmax once, and the number accepted."""
    sampled = decision.sampled + request * decision.sampled_stride_0
    step = tl.zeros((), tl.int64)
    verifying = drafts > 0
    while verifying:
        draft = tl.load(batch.draft_sampled + first + step + 1).to(tl.int64)
        argmax = row_argmax(stats, first + step, PADDED)
        tl.store(sampled + step * decision.sampled_stride_1, argmax)
        accepted = draft == argmax
        step += accepted.to(tl.int64)
        verifying = accepted & (step < drafts)
    tl.store(decision.num_accepted + request * decision.num_accepted_stride, step)


@triton.jit
def store_normalisers(decision, request, target_lse, draft_lse):
    """Store the normalisers that resampling needs after a rejection."""
    tl.store(decision.target_logsumexp + request * decision.target_logsumexp_stride, target_lse)
    tl.store(decision.draft_logsumexp + request * decision.draft_logsumexp_stride, draft_lse)

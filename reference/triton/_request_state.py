"""What the kernels of the request-state family share: row statistics and their scratch.

A row of logits is reduced in blocks, one program each, to a maximum and a sum of exponentials (or an
argmax where the request is greedy); the program of a request combines the blocks.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ._logits import block_argmax, exp, load_logits

STATS_BLOCK = 8192


@triton.jit
def is_draft_row(expanded_idx_mapping, expanded_local_pos, row, rows):
    """Whether the row verifies a draft: the next row exists, is not padding and does not start a request."""
    # Nothing here waits for another load.
    has_next = row + 1 < rows
    next_pos = tl.load(expanded_local_pos + row + 1, mask=has_next, other=0)
    next_state = tl.load(expanded_idx_mapping + row + 1, mask=has_next, other=-1)
    return (next_pos != 0) & (next_state >= 0)


@triton.jit
def block_sum(logits):
    """Maximum of a block, and the sum of the exponentials relative to it."""
    top = tl.max(logits, axis=0)
    return top, tl.sum(exp(logits - tl.where(top == float("-inf"), 0.0, top)), axis=0)


@triton.jit
def _stats_kernel(
    target_max,
    target_sum,
    target_argmax,
    draft_max,
    draft_sum,
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
    HAS_DRAFT_LOGITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    state = tl.load(expanded_idx_mapping + row).to(tl.int64)
    if (state < 0) | (not is_draft_row(expanded_idx_mapping, expanded_local_pos, row, rows)):
        return
    ids = block * BLOCK + tl.arange(0, BLOCK)
    mask = ids < vocabulary
    out = row * tl.num_programs(1) + block
    target = load_logits(target_logits + row * target_stride_0, target_stride_1, ids, mask)
    temp = tl.load(temperature + state)
    if temp == 0.0:
        top, index = block_argmax(target, BLOCK)
        tl.store(target_max + out, top)
        tl.store(target_argmax + out, block * BLOCK + index)
        return
    top, total = block_sum(target)
    tl.store(target_max + out, top)
    tl.store(target_sum + out, total)
    step = tl.load(expanded_local_pos + row).to(tl.int64)
    if HAS_DRAFT_LOGITS:  # noqa: SIM102 -- decided when the kernel is compiled
        if step < draft_steps:
            draft_row = draft_logits + state * draft_stride_0 + step * draft_stride_1
            draft_top, draft_total = block_sum(load_logits(draft_row, draft_stride_2, ids, mask) * (1.0 / temp))
            tl.store(draft_max + out, draft_top)
            tl.store(draft_sum + out, draft_total)


@triton.jit
def row_logsumexp(maxima, sums, row, blocks, PADDED: tl.constexpr):
    """log(sum(exp(row))) from its blocks; minus infinity for a row without any probability."""
    offsets = tl.arange(0, PADDED)
    mask = offsets < blocks
    tops = tl.load(maxima + row * blocks + offsets, mask=mask, other=float("-inf"))
    totals = tl.load(sums + row * blocks + offsets, mask=mask, other=0.0)
    top = tl.max(tops, axis=0)
    base = tl.where(top == float("-inf"), 0.0, top)
    return top + tl.log(tl.maximum(tl.sum(totals * exp(tops - base), axis=0), 1.1754943508222875e-38))


@triton.jit
def row_argmax(maxima, argmaxes, row, blocks, PADDED: tl.constexpr):
    """The argmax of a row from its blocks; of equal maxima the lowest id."""
    offsets = tl.arange(0, PADDED)
    tops = tl.load(maxima + row * blocks + offsets, mask=offsets < blocks, other=float("-inf"))
    return tl.load(argmaxes + row * blocks + tl.argmax(tops, axis=0)).to(tl.int64)


@triton.jit
def log_prob(logit, logsumexp):
    """log p; minus infinity in a row without any probability."""
    return tl.where(logsumexp == float("-inf"), float("-inf"), logit - logsumexp)


@triton.jit
def accept_while_argmax(
    sampled_row, sampled_stride, draft_sampled, first, drafts, maxima, argmaxes, blocks, PADDED: tl.constexpr
):
    """The rule at temperature 0: stores the drafts, or the argmax at the first rejection; the number accepted."""
    step = tl.zeros((), tl.int64)
    verifying = drafts > 0
    while verifying:
        draft = tl.load(draft_sampled + first + step + 1).to(tl.int64)
        argmax = row_argmax(maxima, argmaxes, first + step, blocks, PADDED)
        tl.store(sampled_row + step * sampled_stride, argmax)
        accepted = draft == argmax
        step += accepted.to(tl.int64)
        verifying = accepted & (step < drafts)
    return step


class RowStats:
    """The blocks' statistics of every draft row, as scratch on the device of the logits."""

    def __init__(
        self,
        target_logits: Any,
        draft_logits: Any,
        expanded_idx_mapping: Any,
        expanded_local_pos: Any,
        temperature: Any,
    ) -> None:
        rows = target_logits.shape[0]
        self.vocabulary = shared_vocabulary(target_logits, draft_logits)
        self.steps = stored_steps(draft_logits)
        self.blocks = triton.cdiv(self.vocabulary, STATS_BLOCK)
        self.padded = triton.next_power_of_2(self.blocks)
        scratch = torch.empty((4, rows, self.blocks), dtype=torch.float32, device=target_logits.device)
        self.target_max, self.target_sum, self.draft_max, self.draft_sum = scratch.unbind()
        self.target_argmax = torch.empty((rows, self.blocks), dtype=torch.int32, device=target_logits.device)
        if rows > 0:
            _stats_kernel[(rows, self.blocks)](
                self.target_max,
                self.target_sum,
                self.target_argmax,
                self.draft_max,
                self.draft_sum,
                target_logits,
                *target_logits.stride(),
                draft_logits,
                *draft_strides(draft_logits),
                self.steps,
                expanded_idx_mapping.contiguous(),
                expanded_local_pos.contiguous(),
                temperature.contiguous(),
                rows,
                self.vocabulary,
                HAS_DRAFT_LOGITS=draft_logits is not None,
                BLOCK=STATS_BLOCK,
                num_warps=4,
            )


def shared_vocabulary(target_logits: Any, draft_logits: Any) -> int:
    """How many ids target and draft share."""
    width: int = target_logits.shape[1]
    return width if draft_logits is None else min(width, draft_logits.shape[2])


def draft_strides(draft_logits: Any) -> tuple[int, int, int]:
    """Strides of the draft logits, zeros for one-hot drafts."""
    return (0, 0, 0) if draft_logits is None else draft_logits.stride()


def stored_steps(draft_logits: Any) -> int:
    """How many draft steps a state holds; any number for one-hot drafts."""
    return 2**31 - 1 if draft_logits is None else draft_logits.shape[1]

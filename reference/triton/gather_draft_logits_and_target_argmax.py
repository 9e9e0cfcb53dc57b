"""gather_draft_logits_and_target_argmax: collect what verification reads, in the order of the target's rows.

    greedy row:   (max, argmax) of target_logits[row, block]
    sampled row:  draft_logits[state, step, block]

One launch, with one program per row and block of the vocabulary.

Source: vLLM 0.33.0, _compute_local_logits_stats_kernel, which defines the block maxima and the gathering.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ._request_state import draft_of, is_draft_row, rows_of, shared_vocabulary, target_of

_TILE: tl.constexpr = tl.constexpr(2048)
"""Logits that the lanes of a program hold at once."""


@triton.jit
def _tiled_argmax(target, row, first, vocabulary, BLOCK_SIZE: tl.constexpr, PADDED: tl.constexpr):
    """Return the maximum of a block of logits and its offset, the lowest for equal maxima.

    Every lane keeps the best value of its column of the tiles, so that one reduction suffices for any block length. NaN
    never wins.
    """
    TILE: tl.constexpr = min(PADDED, _TILE)
    lanes = tl.arange(0, TILE)
    best = tl.full((TILE,), float("-inf"), tl.float32)
    best_offset = lanes
    for tile in tl.static_range(0, PADDED, TILE):
        offsets = tile + lanes
        mask = (offsets < BLOCK_SIZE) & (first + offsets < vocabulary)
        ids = (first + offsets).to(tl.int64)
        logits = target.logits + row * target.row_stride + ids * target.id_stride
        x = tl.load(logits, mask=mask, other=float("-inf")).to(tl.float32)
        is_better = x > best
        best = tl.where(is_better, x, best)
        best_offset = tl.where(is_better, offsets, best_offset)
    top = tl.max(best, axis=0)
    return top, tl.min(tl.where(best == top, best_offset, PADDED), axis=0)


@triton.jit
def _gather_kernel(
    local_max,
    local_max_stride_0,
    local_max_stride_1,
    statistics,
    local_argmax,
    local_argmax_stride_0,
    local_argmax_stride_1,
    gathered,
    gathered_stride_0,
    gathered_stride_1,
    gathered_columns,
    target,
    draft,
    rows,
    temperature,
    vocabulary,
    BLOCK_SIZE: tl.constexpr,
    PADDED: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    state = tl.load(rows.idx_mapping + row).to(tl.int64)
    if (state < 0) | (not is_draft_row(rows, row)):
        return
    lanes = tl.arange(0, PADDED)
    ids = block * BLOCK_SIZE + lanes
    mask = (lanes < BLOCK_SIZE) & (ids < vocabulary)
    if tl.load(temperature + state) == 0.0:
        if block >= statistics:
            return
        top, index = _tiled_argmax(target, row, block * BLOCK_SIZE, vocabulary, BLOCK_SIZE, PADDED)
        tl.store(local_max + row * local_max_stride_0 + block.to(tl.int64) * local_max_stride_1, top)
        out = local_argmax + row * local_argmax_stride_0 + block.to(tl.int64) * local_argmax_stride_1
        tl.store(out, block * BLOCK_SIZE + index)
    elif gathered is not None:
        step = tl.load(rows.local_pos + row).to(tl.int64)
        draft_row = draft.logits + state * draft.state_stride + step * draft.step_stride
        mask = mask & (ids < tl.where(step < draft.steps, gathered_columns, 0))
        logits = tl.load(draft_row + ids.to(tl.int64) * draft.id_stride, mask=mask)
        tl.store(gathered + row * gathered_stride_0 + ids.to(tl.int64) * gathered_stride_1, logits, mask=mask)


def gather_draft_logits_and_target_argmax(
    *,
    local_max: Any,
    local_argmax: Any,
    gathered_draft_logits: Any,
    target_logits: Any,
    draft_logits: Any,
    expanded_idx_mapping: Any,
    expanded_local_pos: Any,
    temperature: Any,
    BLOCK_SIZE: int,
) -> None:
    rows = rows_of(expanded_idx_mapping, expanded_local_pos)
    if rows.count == 0:
        return
    vocabulary = shared_vocabulary(target_logits, draft_logits)
    gathered = None if draft_logits is None else gathered_draft_logits
    _gather_kernel[(rows.count, triton.cdiv(vocabulary, BLOCK_SIZE))](
        local_max,
        *local_max.stride(),
        local_max.shape[1],
        local_argmax,
        *local_argmax.stride(),
        gathered,
        *((0, 0) if gathered is None else gathered.stride()),
        0 if gathered is None else gathered.shape[1],
        target_of(target_logits),
        draft_of(draft_logits),
        rows,
        temperature.contiguous(),
        vocabulary,
        BLOCK_SIZE=BLOCK_SIZE,
        PADDED=triton.next_power_of_2(BLOCK_SIZE),
        num_warps=8,
    )

"""gather_draft_logits_and_target_argmax: what verification reads, in the order of the target's rows.

    greedy row:   (max, argmax) of target_logits[row, block]
    sampled row:  draft_logits[state, step, block]

One launch, a program for a row and a block of the vocabulary.

Source: vLLM 0.33.0, _compute_local_logits_stats_kernel, whose per-block maxima and gathering these are.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ._logits import block_argmax, load_logits
from ._request_state import draft_strides, is_draft_row, shared_vocabulary, stored_steps


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
    GATHER: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    PADDED: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    state = tl.load(expanded_idx_mapping + row).to(tl.int64)
    if (state < 0) | (not is_draft_row(expanded_idx_mapping, expanded_local_pos, row, rows)):
        return
    lanes = tl.arange(0, PADDED)
    ids = block * BLOCK_SIZE + lanes
    mask = (lanes < BLOCK_SIZE) & (ids < vocabulary)
    if tl.load(temperature + state) == 0.0:
        if block >= statistics:
            return
        target = load_logits(target_logits + row * target_stride_0, target_stride_1, ids, mask)
        top, index = block_argmax(target, PADDED)
        tl.store(local_max + row * local_max_stride_0 + block.to(tl.int64) * local_max_stride_1, top)
        out = local_argmax + row * local_argmax_stride_0 + block.to(tl.int64) * local_argmax_stride_1
        tl.store(out, block * BLOCK_SIZE + index)
    elif GATHER:
        step = tl.load(expanded_local_pos + row).to(tl.int64)
        draft_row = draft_logits + state * draft_stride_0 + step * draft_stride_1
        mask = mask & (ids < tl.where(step < draft_steps, gathered_columns, 0))
        draft = tl.load(draft_row + ids.to(tl.int64) * draft_stride_2, mask=mask)
        tl.store(gathered + row * gathered_stride_0 + ids.to(tl.int64) * gathered_stride_1, draft, mask=mask)


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
    rows = target_logits.shape[0]
    if rows == 0:
        return
    vocabulary = shared_vocabulary(target_logits, draft_logits)
    gather = gathered_draft_logits is not None and draft_logits is not None
    _gather_kernel[(rows, triton.cdiv(vocabulary, BLOCK_SIZE))](
        local_max,
        *local_max.stride(),
        local_max.shape[1],
        local_argmax,
        *local_argmax.stride(),
        gathered_draft_logits,
        *(gathered_draft_logits.stride() if gather else (0, 0)),
        gathered_draft_logits.shape[1] if gather else 0,
        target_logits,
        *target_logits.stride(),
        draft_logits,
        *draft_strides(draft_logits),
        stored_steps(draft_logits),
        expanded_idx_mapping.contiguous(),
        expanded_local_pos.contiguous(),
        temperature.contiguous(),
        rows,
        vocabulary,
        GATHER=gather,
        BLOCK_SIZE=BLOCK_SIZE,
        PADDED=triton.next_power_of_2(BLOCK_SIZE),
    )

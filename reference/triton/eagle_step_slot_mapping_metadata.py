"""eagle_step_slot_mapping_metadata: the next position of every request, its KV slot and the sequence length.

    next = position + 1,  slot = block_table[next // block_size] * block_size + next % block_size

Past max_model_len the position is 0, the slot PAD_ID and the length 1. Rows past the batch get PAD_ID.

One launch, with one lane per row of the slot mapping.

Source: vLLM 0.33.0, eagle_step_slot_mapping_metadata_kernel.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def _step_kernel(
    positions,
    positions_stride,
    block_table,
    block_table_stride_0,
    block_table_stride_1,
    seq_lens,
    seq_lens_stride,
    out_clamped_positions,
    out_positions_stride,
    out_slot_mapping,
    out_slot_stride,
    max_model_len,
    n_blocks_per_req,
    PAD_ID,
    batch_size,
    rows,
    block_size: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = row < batch_size
    position = tl.load(positions + row * positions_stride, mask=mask, other=-1).to(tl.int64) + 1
    is_in = mask & (position >= 0) & (position < max_model_len)
    position = tl.where(is_in, position, 0)
    column = tl.minimum(position // block_size, n_blocks_per_req - 1)
    block = tl.load(block_table + row * block_table_stride_0 + column * block_table_stride_1, mask=is_in, other=0).to(
        tl.int64
    )
    length = tl.load(seq_lens + row * seq_lens_stride, mask=mask, other=0).to(tl.int64) + 1
    slot = tl.where(is_in, block * block_size + position % block_size, PAD_ID)
    tl.store(out_clamped_positions + row * out_positions_stride, position, mask=mask)
    tl.store(seq_lens + row * seq_lens_stride, tl.where(is_in, tl.minimum(length, max_model_len), 1), mask=mask)
    tl.store(out_slot_mapping + row * out_slot_stride, slot, mask=row < rows)


def eagle_step_slot_mapping_metadata(
    *,
    positions_ptr: Any,
    block_table_ptr: Any,
    block_table_stride: int,
    seq_lens_ptr: Any,
    out_clamped_positions_ptr: Any,
    out_slot_mapping_ptr: Any,
    block_size: int,
    max_model_len: int,
    n_blocks_per_req: int,
    PAD_ID: int,
    batch_size: int,
) -> None:
    rows = out_slot_mapping_ptr.shape[0]
    if rows == 0:
        return
    block = 128
    _step_kernel[(triton.cdiv(rows, block),)](
        positions_ptr,
        positions_ptr.stride(0),
        block_table_ptr,
        *block_table_ptr.stride(),
        seq_lens_ptr,
        seq_lens_ptr.stride(0),
        out_clamped_positions_ptr,
        out_clamped_positions_ptr.stride(0),
        out_slot_mapping_ptr,
        out_slot_mapping_ptr.stride(0),
        max_model_len,
        n_blocks_per_req,
        PAD_ID,
        batch_size,
        rows,
        block_size=block_size,
        BLOCK=block,
        num_warps=4,
    )

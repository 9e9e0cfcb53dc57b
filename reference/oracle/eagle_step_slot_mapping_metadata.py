"""Oracle of eagle_step_slot_mapping_metadata: the contract's clauses, executed."""

from __future__ import annotations

from verispec.reference.oracle._rows import Array


def eagle_step_slot_mapping_metadata(
    *,
    positions_ptr: Array,
    block_table_ptr: Array,
    block_table_stride: int,
    seq_lens_ptr: Array,
    out_clamped_positions_ptr: Array,
    out_slot_mapping_ptr: Array,
    block_size: int,
    max_model_len: int,
    n_blocks_per_req: int,
    PAD_ID: int,
    batch_size: int,
) -> dict[str, Array]:
    seq_lens, positions, slots = seq_lens_ptr.copy(), out_clamped_positions_ptr.copy(), out_slot_mapping_ptr.copy()
    for b in range(batch_size):
        position = int(positions_ptr[b]) + 1
        if 0 <= position < max_model_len:
            block = block_table_ptr[b, min(position // block_size, n_blocks_per_req - 1)]
            positions[b] = position
            slots[b] = int(block) * block_size + position % block_size
            seq_lens[b] = min(int(seq_lens_ptr[b]) + 1, max_model_len)
        else:
            positions[b], slots[b], seq_lens[b] = 0, PAD_ID, 1
    slots[batch_size:] = PAD_ID
    return {"seq_lens_ptr": seq_lens, "out_clamped_positions_ptr": positions, "out_slot_mapping_ptr": slots}

"""Oracle of compute_slot_mapping: the contract's clauses, executed."""

from __future__ import annotations

from verispec.reference.oracle._rows import Array


def compute_slot_mapping(
    *,
    num_tokens: int,
    max_num_tokens: int,
    query_start_loc_ptr: Array,
    positions_ptr: Array,
    block_table_ptr: Array,
    block_table_stride: int,
    slot_mapping_ptr: Array,
    KV_CACHE_BLOCK_SIZE: int,
    TOTAL_CP_WORLD_SIZE: int,
    TOTAL_CP_RANK: int,
    CP_KV_CACHE_INTERLEAVE_SIZE: int,
    PAD_ID: int,
    BLOCK_SIZE: int,
) -> dict[str, Array]:
    slots = slot_mapping_ptr.copy()
    columns = block_table_ptr.shape[1]
    for b in range(len(query_start_loc_ptr) - 1):
        for token in range(query_start_loc_ptr[b], query_start_loc_ptr[b + 1]):
            column, offset = divmod(int(positions_ptr[token]), KV_CACHE_BLOCK_SIZE * TOTAL_CP_WORLD_SIZE)
            run, in_run = divmod(offset, CP_KV_CACHE_INTERLEAVE_SIZE)
            turn, rank = divmod(run, TOTAL_CP_WORLD_SIZE)
            slots[token] = PAD_ID
            if 0 <= column < columns and rank == TOTAL_CP_RANK:
                first = int(block_table_ptr[b, column]) * KV_CACHE_BLOCK_SIZE
                slots[token] = first + turn * CP_KV_CACHE_INTERLEAVE_SIZE + in_run
    slots[num_tokens:max_num_tokens] = PAD_ID
    return {"slot_mapping_ptr": slots}

"""Oracle of copy_and_expand_dflash_inputs: the contract's clauses, executed."""

from __future__ import annotations

import numpy as np

from verispec.reference.oracle._rows import Array


def copy_and_expand_dflash_inputs(
    *,
    next_token_ids_ptr: Array,
    target_positions_ptr: Array,
    out_input_ids_ptr: Array,
    out_context_positions_ptr: Array,
    out_query_positions_ptr: Array,
    out_context_slot_mapping_ptr: Array,
    out_query_slot_mapping_ptr: Array,
    out_token_indices_ptr: Array,
    block_table_ptr: Array,
    block_table_stride: int,
    query_start_loc_ptr: Array,
    num_rejected_tokens_ptr: Array | None,
    parallel_drafting_token_id: int,
    block_size: int,
    num_query_per_req: int,
    num_speculative_tokens: int,
    total_input_tokens: int,
    BLOCK_SIZE: int,
    HAS_NUM_REJECTED: bool = False,
) -> dict[str, Array]:
    ids, indices = out_input_ids_ptr.copy(), out_token_indices_ptr.copy()
    context_positions, query_positions = out_context_positions_ptr.copy(), out_query_positions_ptr.copy()
    context_slots, query_slots = out_context_slot_mapping_ptr.copy(), out_query_slot_mapping_ptr.copy()
    requests, queries = len(query_start_loc_ptr) - 1, num_query_per_req
    start, end = (query_start_loc_ptr[n : n + requests].astype(np.int64) for n in (0, 1))
    positions = target_positions_ptr.astype(np.int64)

    def slots_of(request: Array, position: Array) -> Array:
        """Return the slots of positions of requests, of one shape."""
        column, offset = np.divmod(position, block_size)
        column = np.minimum(column, block_table_ptr.shape[1] - 1)
        slots: Array = block_table_ptr[request, column].astype(np.int64) * block_size + offset
        return slots

    # Requests follow each other, so that their context tokens do too.
    token = np.arange(start[0], end[-1]) if requests else np.arange(0)
    context_positions[token] = positions[token]
    context_slots[token] = slots_of(np.arange(requests).repeat(end - start), positions[token])

    rejected = num_rejected_tokens_ptr if HAS_NUM_REJECTED and num_rejected_tokens_ptr is not None else 0 * start
    last = np.maximum(end - rejected, start + 1) - 1
    before = np.full(requests, -1)  # for a request without target tokens
    before[end > start] = positions[last[end > start]]
    position = before[:, None] + 1 + np.arange(queries)
    request = np.arange(requests)[:, None].repeat(queries, axis=1)
    token_of_query = np.full((requests, queries), parallel_drafting_token_id)
    token_of_query[:, 0] = next_token_ids_ptr[:requests]
    for output, values in (
        (ids, token_of_query),
        (query_positions, position),
        (query_slots, slots_of(request, position)),
    ):
        output[: requests * queries] = values.reshape(-1)

    sampled = np.arange(requests)[:, None] * queries + 1 + np.arange(num_speculative_tokens)
    indices[: requests * num_speculative_tokens] = sampled.reshape(-1)
    return {
        "out_input_ids_ptr": ids,
        "out_context_positions_ptr": context_positions,
        "out_query_positions_ptr": query_positions,
        "out_context_slot_mapping_ptr": context_slots,
        "out_query_slot_mapping_ptr": query_slots,
        "out_token_indices_ptr": indices,
    }

"""Oracle of copy_and_expand_eagle_inputs: the contract's clauses, executed."""

from __future__ import annotations

from verispec.reference.oracle._rows import Array


def copy_and_expand_eagle_inputs(
    *,
    target_token_ids_ptr: Array,
    target_positions_ptr: Array,
    next_token_ids_ptr: Array,
    out_input_ids_ptr: Array,
    out_positions_ptr: Array,
    out_is_rejected_token_mask_ptr: Array,
    out_is_masked_token_mask_ptr: Array,
    out_new_token_indices_ptr: Array,
    out_hidden_state_mapping_ptr: Array,
    query_start_loc_ptr: Array,
    query_end_loc_ptr: Array,
    padding_token_id: int,
    parallel_drafting_token_id: int,
    total_input_tokens: int,
    num_padding_slots_per_request: int,
    shift_input_ids: bool,
    BLOCK_SIZE_TOKENS: int,
) -> dict[str, Array]:
    ids, positions = out_input_ids_ptr.copy(), out_positions_ptr.copy()
    rejected, masked = out_is_rejected_token_mask_ptr.copy(), out_is_masked_token_mask_ptr.copy()
    new_tokens, mapping = out_new_token_indices_ptr.copy(), out_hidden_state_mapping_ptr.copy()
    dropped = 1 if shift_input_ids else 0
    for b in range(len(query_end_loc_ptr)):
        start, end, last = int(query_start_loc_ptr[b]), int(query_start_loc_ptr[b + 1]), int(query_end_loc_ptr[b])
        # The request's slots in order: (token, is new token, is mask token, is rejected).
        slots = [(target_token_ids_ptr[i], False, False, False) for i in range(start + dropped, last + 1)]
        slots += [(next_token_ids_ptr[b], True, False, False)]
        slots += [(parallel_drafting_token_id, True, True, False)] * (num_padding_slots_per_request - 1)
        slots += [(padding_token_id, False, False, True)] * (end - 1 - last)
        first = start + b * (num_padding_slots_per_request - dropped)
        new = b * num_padding_slots_per_request
        for j, (token, is_new, is_mask, is_rejected) in enumerate(slots):
            ids[first + j] = token
            positions[first + j] = 0 if is_rejected else int(target_positions_ptr[start]) + j
            rejected[first + j], masked[first + j] = is_rejected, is_mask
            if is_new:
                new_tokens[new] = first + j
                new += 1
        if shift_input_ids:
            for j in range(end - start):
                mapping[start + j] = first + j
    return {
        "out_input_ids_ptr": ids,
        "out_positions_ptr": positions,
        "out_is_rejected_token_mask_ptr": rejected,
        "out_is_masked_token_mask_ptr": masked,
        "out_new_token_indices_ptr": new_tokens,
        "out_hidden_state_mapping_ptr": mapping,
    }

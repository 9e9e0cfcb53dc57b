"""Oracle of copy_and_expand_eagle_inputs: the contract's clauses, executed."""

from __future__ import annotations

import numpy as np

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
    requests, more = len(query_end_loc_ptr), num_padding_slots_per_request
    start, end = (query_start_loc_ptr[n : n + requests].astype(np.int64) for n in (0, 1))
    last = query_end_loc_ptr.astype(np.int64)
    dropped = 1 if shift_input_ids else 0
    first = start + np.arange(requests) * (more - dropped)
    # The slots of each request in order: tokens of the target, the next token, mask tokens, padding.
    once = np.ones_like(start)
    parts = np.stack([last + 1 - start - dropped, once, once * (more - 1), end - 1 - last], axis=1).clip(min=0)
    owner, j = _counted(parts.sum(axis=1))
    slot = first[owner] + j

    def of_parts(target: int, following: int, mask: int, padding: int) -> Array:
        """Return one value per slot, by its part."""
        return np.tile([target, following, mask, padding], requests).repeat(parts.ravel())

    tokens = of_parts(0, 0, parallel_drafting_token_id, padding_token_id)
    is_target, is_following = of_parts(True, False, False, False), of_parts(False, True, False, False)
    tokens[is_target] = target_token_ids_ptr[(start[owner] + dropped + j)[is_target]]
    tokens[is_following] = next_token_ids_ptr[:requests]
    ids[slot] = tokens
    is_rejected = of_parts(False, False, False, True)
    moved = target_positions_ptr[start[owner]] + j
    positions[slot] = np.where(is_rejected, 0, moved)
    rejected[slot], masked[slot] = is_rejected, of_parts(False, False, True, False)
    placed = slot[of_parts(False, True, True, False)]
    new_tokens[: len(placed)] = placed
    if shift_input_ids:
        owner, j = _counted(end - start)
        mapping[start[owner] + j] = first[owner] + j
    return {
        "out_input_ids_ptr": ids,
        "out_positions_ptr": positions,
        "out_is_rejected_token_mask_ptr": rejected,
        "out_is_masked_token_mask_ptr": masked,
        "out_new_token_indices_ptr": new_tokens,
        "out_hidden_state_mapping_ptr": mapping,
    }


def _counted(counts: Array) -> tuple[Array, Array]:
    """Return the request of each of its `counts` [B] elements, and the number of the element in its request."""
    owner = np.arange(len(counts)).repeat(counts)
    return owner, np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]

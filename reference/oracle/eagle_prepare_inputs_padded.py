"""Oracle of eagle_prepare_inputs_padded: the contract's clauses, executed."""

from __future__ import annotations

from verispec.reference.oracle._rows import Array, draft_rows


def eagle_prepare_inputs_padded(
    *,
    cu_num_draft_tokens_ptr: Array,
    valid_sampled_tokens_count_ptr: Array,
    query_start_loc_gpu_ptr: Array,
    token_indices_to_sample_ptr: Array,
    num_rejected_tokens_gpu_ptr: Array,
    num_reqs: int,
) -> dict[str, Array]:
    indices, rejected = token_indices_to_sample_ptr.copy(), num_rejected_tokens_gpu_ptr.copy()
    for b, start, end in draft_rows(cu_num_draft_tokens_ptr[:num_reqs]):
        drafts = end - start
        rejected[b] = drafts + 1 - int(valid_sampled_tokens_count_ptr[b]) if drafts > 0 else 0
        indices[b] = int(query_start_loc_gpu_ptr[b + 1]) - 1 - int(rejected[b])
    return {"token_indices_to_sample_ptr": indices, "num_rejected_tokens_gpu_ptr": rejected}

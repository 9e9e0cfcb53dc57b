"""Oracle of eagle_prepare_next_token_padded: the contract's clauses, executed."""

from __future__ import annotations

from verispec.reference.oracle._rows import Array


def eagle_prepare_next_token_padded(
    *,
    sampled_token_ids_ptr: Array,
    discard_request_mask_ptr: Array,
    backup_next_token_ids_ptr: Array,
    next_token_ids_ptr: Array,
    valid_sampled_tokens_count_ptr: Array,
    vocab_size: int,
    num_sampled_tokens_per_req: int,
    num_reqs: int,
    stride_sampled_token_ids: int,
    BLOCK_SIZE_TOKENS: int,
) -> dict[str, Array]:
    next_token, count = next_token_ids_ptr.copy(), valid_sampled_tokens_count_ptr.copy()
    for b in range(num_reqs):
        row = sampled_token_ids_ptr[b, :num_sampled_tokens_per_req]
        valid = [] if discard_request_mask_ptr[b] else [token for token in row if 0 <= token < vocab_size]
        next_token[b] = valid[-1] if valid else backup_next_token_ids_ptr[b]
        count[b] = len(valid)
    return {"next_token_ids_ptr": next_token, "valid_sampled_tokens_count_ptr": count}

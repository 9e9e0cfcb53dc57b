"""Oracle of rejection_random_sample: the contract's clauses, executed."""

from __future__ import annotations

import numpy as np

from verispec.reference.oracle._rows import Array, draft_rows


def rejection_random_sample(
    *,
    output_token_ids_ptr: Array,
    cu_num_draft_tokens_ptr: Array,
    draft_token_ids_ptr: Array,
    draft_probs_ptr: Array | None,
    target_probs_ptr: Array,
    bonus_token_ids_ptr: Array,
    recovered_token_ids_ptr: Array,
    uniform_probs_ptr: Array,
    is_greedy_ptr: Array,
    max_spec_len: int,
    vocab_size: int,
    synthetic_conditional_rates_ptr: Array | None,
    NO_DRAFT_PROBS: bool,
    SYNTHETIC_MODE: bool,
) -> dict[str, Array]:
    output = output_token_ids_ptr.copy()
    bonus = bonus_token_ids_ptr.reshape(-1)

    def accepted(token: int, position: int) -> bool:
        draft, u = draft_token_ids_ptr[token], np.float64(uniform_probs_ptr[token])
        if not 0 <= draft < vocab_size:
            return False
        if SYNTHETIC_MODE:
            assert synthetic_conditional_rates_ptr is not None
            return bool(u < np.float64(synthetic_conditional_rates_ptr[position]))
        p = np.float64(target_probs_ptr[token, draft])
        q = np.float64(1 if NO_DRAFT_PROBS or draft_probs_ptr is None else draft_probs_ptr[token, draft])
        with np.errstate(all="ignore"):
            return bool(q > 0 and p / q >= u)

    for b, start, end in draft_rows(cu_num_draft_tokens_ptr):
        if is_greedy_ptr[b]:
            continue
        for position in range(end - start):
            if not accepted(start + position, position):
                output[b, position] = recovered_token_ids_ptr[start + position]
                break
            output[b, position] = draft_token_ids_ptr[start + position]
        else:
            output[b, end - start] = bonus[b]
    return {"output_token_ids_ptr": output}

"""Oracle of rejection_greedy_sample: the contract's clauses, executed."""

from __future__ import annotations

from verispec.reference.oracle._rows import Array, draft_rows


def rejection_greedy_sample(
    *,
    output_token_ids_ptr: Array,
    cu_num_draft_tokens_ptr: Array,
    draft_token_ids_ptr: Array,
    target_argmax_ptr: Array,
    bonus_token_ids_ptr: Array,
    is_greedy_ptr: Array | None,
    max_spec_len: int,
    uniform_probs_ptr: Array | None,
    synthetic_conditional_rates_ptr: Array | None,
    SYNTHETIC_MODE: bool,
) -> dict[str, Array]:
    output = output_token_ids_ptr.copy()
    bonus = bonus_token_ids_ptr.reshape(-1)
    for b, start, end in draft_rows(cu_num_draft_tokens_ptr):
        if is_greedy_ptr is not None and not is_greedy_ptr[b]:
            continue
        for position in range(end - start):
            draft, argmax = draft_token_ids_ptr[start + position], target_argmax_ptr[start + position]
            if SYNTHETIC_MODE:
                assert uniform_probs_ptr is not None and synthetic_conditional_rates_ptr is not None
                u, rate = float(uniform_probs_ptr[start + position]), float(synthetic_conditional_rates_ptr[position])
                accepted = draft >= 0 and u < rate
            else:
                accepted = draft == argmax
            output[b, position] = draft if accepted else argmax
            if not accepted:
                break
        else:
            output[b, end - start] = bonus[b]
    return {"output_token_ids_ptr": output}

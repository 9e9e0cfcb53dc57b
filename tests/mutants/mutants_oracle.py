"""Small faults for the oracles. `placement.Mutant` describes the entries."""

from __future__ import annotations

Entry = tuple[str, str, str] | tuple[str, str, str, int]

MUTANTS: dict[str, list[Entry]] = {
    "build_draft_tree": [
        ("BDT-3", "= child[1:][is_next]", "= child[:-1][is_next] + 1"),
        ("BDT-5", "(lengths + level).reshape(-1)", "level.reshape(-1)"),
        ("BDT-6", "sees[:, :, 0] = True", "sees[:, 0, 0] = True"),
        ("BDT-10", "first + 1, -1)", "first + 1, 0)"),
        ("BDT-12", "range(depth)", "range(depth + 2)"),
    ],
    "compute_slot_mapping": [
        ("CSM-3", "rank == TOTAL_CP_RANK", "rank >= TOTAL_CP_RANK"),
        ("CSM-4", "slots[num_tokens:max_num_tokens]", "slots[num_tokens + 1 : max_num_tokens]"),
        ("CSM-8", "0 <= column < columns", "column < columns"),
    ],
    "copy_and_expand_dflash_inputs": [
        ("CDI-4", "np.maximum(end - rejected, start + 1)", "np.maximum(end, start + 1)"),
        ("CDI-8", "* queries + 1 + np", "* queries + np"),
        ("CDI-13", "block_table_ptr.shape[1] - 1", "block_table_ptr.shape[1] - 2"),
        ("CDI-14", "np.maximum(end - rejected, start + 1)", "(end - rejected)"),
    ],
    "copy_and_expand_eagle_inputs": [
        ("CEE-5", "np.where(is_rejected, 0, moved)", "moved"),
        ("CEE-2", "start[owner] + dropped + j", "start[owner] + j"),
        ("CEE-8", "if shift_input_ids:", "if not shift_input_ids:"),
        ("CEE-6", "start[owner]] + j", "start[owner] + (j > 0)] + j - (j > 0)"),
    ],
    "eagle_prepare_inputs_padded": [
        ("EPI-2", "if drafts > 0 else 0", "if drafts >= 0 else 0"),
        ("EPI-3", "- 1 - int(rejected[b])", "- int(rejected[b])"),
        ("EPI-5", "cu_num_draft_tokens_ptr[:num_reqs]", "cu_num_draft_tokens_ptr"),
    ],
    "eagle_prepare_next_token_padded": [
        ("ENT-4", "[] if discard_request_mask_ptr[b] else ", ""),
        ("ENT-6", "if 0 <= token < vocab_size", "if token != -1 and token < vocab_size"),
        ("ENT-2", "valid[-1]", "valid[0]"),
    ],
    "eagle_step_slot_mapping_metadata": [
        ("ESM-2", "0 <= position < max_model_len", "0 <= position <= max_model_len"),
        ("ESM-5", "    slots[batch_size:] = PAD_ID\n", ""),
        ("ESM-4", "min(int(seq_lens_ptr[b]) + 1, max_model_len)", "int(seq_lens_ptr[b]) + 1"),
    ],
    "expand_batch_to_tokens": [
        ("EXP-3", "replace_to if value == wanted else value", "replace_to if value != wanted else value"),
        ("EXP-1", "output[start:end]", "output[start : end - 1]"),
        (
            "EXP-3",
            "replace_to if value == wanted else value",
            "replace_to if value == wanted or value != value else value",
        ),
        ("EXP-3", "if value == wanted else", "if float(value) == wanted else"),
    ],
    "rejection_greedy_sample": [
        ("RGS-8", "u < rate", "u <= rate"),
        (
            "RGS-3",
            "        else:\n            output[b, end - start]",
            "        if True:\n            output[b, end - start]",
        ),
        ("RGS-9", "draft >= 0 and ", ""),
    ],
    "rejection_random_sample": [
        ("RRS-1", "p / q >= u", "p / q > u"),
        ("RRS-9", "q > 0 and p / q", "q >= 0 and p / q"),
        ("RRS-11", "np.float64(uniform_probs_ptr[token])", "np.float32(uniform_probs_ptr[token])"),
        ("RRS-1", "np.float64(uniform_probs_ptr[token])", "np.floor(uniform_probs_ptr[token] * 65536) / 65536"),
        ("RRS-2", "p / q >= u", "(p / q > u if NO_DRAFT_PROBS else p / q >= u)"),
    ],
    "sample_recovered_tokens": [
        (
            "SRT-9",
            "if winner is None:\n                winner = largest(target, inv_q_ptr[b])",
            "if False:\n                pass",
        ),
        ("SRT-9", "if winner is None:\n", "if winner is None and not NO_DRAFT_PROBS:\n"),
        ("SRT-15", "residual = target.copy()", "residual = np.where(target < 2.0**-14, 0.0, target)"),
        ("SRT-4", "largest(residual, inv_q_ptr[b])", "largest(residual, inv_q_ptr[0])", 0),
        ("SRT-7", "if 0 <= draft_token_ids_ptr[token] < vocab_size:", "if draft_token_ids_ptr[token] < vocab_size:"),
    ],
    "verify_draft_logits": [
        ("VDL-1", "share = numbers.acceptance() * q[draft]", "share = 0.5 * q[draft]"),
        ("VDL-2", "numbers.trial(t)", "numbers.trial(t + 1)"),
        ("VDL-2", "v * p[candidate]", "v"),
        ("VDL-2", "inverse_cdf(weight.pool, u,", "inverse_cdf(weight.kept, u,"),
        ("VDL-3", "np.maximum(p - q, 0.0)", "p.copy()"),
        ("VDL-7", "not 0 <= draft < vocabulary", "not -1 != draft < vocabulary"),
        ("VDL-16", "if draft_normaliser is not None:", "if draft_normaliser is None and False:"),
    ],
    "verify_one_hot": [
        ("VOH-1", "exceeds(weight.kept[draft], share,", "exceeds(weight.kept[draft] / 2, share,"),
        ("VOH-2", "others = weight.without(draft)", "others = weight"),
        (
            "VOH-3",
            "else weight).draw(numbers, rounding)",
            "else weight).draw(Numbers(numbers.seed, numbers.pos, step + 1), rounding)",
        ),
        ("VOH-6", "if 0 <= draft < len(weight.kept):", "if -1 != draft < len(weight.kept):"),
    ],
    "verify_tree_greedy": [
        (
            "VTG-6",
            "candidates[b, child] == wanted",
            "(candidates[b, child] == wanted and child == retrieve_next_token[b, node])",
        ),
        ("VTG-7", "() if is_full else", "() if is_full or node > 0 else"),
        ("VTG-11", "argmax[place]", "target_predict[b, node]"),
    ],
    "verify_tree_sampled": [
        ("VTS-1", "< q_sum * p[token]", "<= q_sum * p[token]"),
        ("VTS-2", "q_sum * p - p_sum * q", "q_sum * p - q"),
        ("VTS-3", "left[token] = 0.0", "left[token] *= 0.5", 0),
        ("VTS-4", "q is not None and WITHOUT_REPLACEMENT", "q is not None"),
        ("VTS-13", "if not left_sum > 0:\n                break\n", "if not left_sum > 0:\n                continue\n"),
        ("VTS-15", "np.float64(uniform_samples[b, child])", "np.float32(uniform_samples[b, child])"),
    ],
    "verify_tree_typical": [
        ("VTT-1", "u < tried / divisor", "u <= tried / divisor"),
        ("VTT-1", "uniform_samples[b, node]", "uniform_samples[b, 0]"),
        ("VTT-2", "p[token] >= threshold_single", "p[token] > threshold_single"),
        ("VTT-3", "left[token] = 0.0", "pass"),
        ("VTT-6", "tried += float(p[token])", "tried += float(left[token])"),
        ("VTT-7", "max(threshold_acc, 1e-9)", "max(threshold_acc, 1e-6)"),
    ],
}

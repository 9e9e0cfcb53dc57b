"""Cases of packed batches: requests as counts, tokens in one row."""

from __future__ import annotations

from typing import Any

import numpy as np
from case_parts import POISON, Array, Size, draft_counts, maker, random_logits, softmax


def _flat(rng: np.random.Generator, size: Size) -> tuple[Array, int]:
    counts = draft_counts(rng, size)
    return np.cumsum(counts).astype(np.int32), int(counts.sum())


@maker("float32", "int64", "bool")
def expand_batch_to_tokens(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    cu, tokens = _flat(rng, size)
    values = {
        "float32": rng.choice([0.0, 0.7, 1.3, np.nan], size.requests).astype(np.float32),
        "int64": rng.integers(0, 2, size.requests) * (2**40 + 1),
        "bool": rng.integers(0, 2, size.requests).astype(np.bool_),
    }[variant]
    return {
        "output_ptr": np.zeros(tokens, values.dtype),
        "input_ptr": values,
        "cu_num_tokens_ptr": cu,
        "replace_from": 0.0,
        "replace_to": 1.0,
        "MAX_NUM_TOKENS": size.drafts,
    }


def _rejection(rng: np.random.Generator, size: Size, synthetic: bool) -> dict[str, Any]:
    cu, tokens = _flat(rng, size)
    drafts = rng.integers(0, size.vocabulary, tokens).astype(np.int32)
    drafts[3::5] = -1
    return {
        "output_token_ids_ptr": np.full((size.requests, size.drafts + 1), -1, np.int32),
        "cu_num_draft_tokens_ptr": cu,
        "draft_token_ids_ptr": drafts,
        "bonus_token_ids_ptr": rng.integers(0, size.vocabulary, (size.requests, 1)).astype(np.int32),
        "is_greedy_ptr": rng.integers(0, 2, size.requests).astype(np.bool_),
        "max_spec_len": size.drafts,
        "uniform_probs_ptr": rng.random(tokens),
        "synthetic_conditional_rates_ptr": rng.random(size.drafts).astype(np.float32) if synthetic else None,
        "SYNTHETIC_MODE": synthetic,
    }


@maker("standard", "synthetic", "all_greedy")
def rejection_greedy_sample(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    arguments = _rejection(rng, size, variant == "synthetic")
    drafts = arguments["draft_token_ids_ptr"]
    argmax = np.where(rng.random(len(drafts)) < 0.7, drafts, rng.integers(0, size.vocabulary, len(drafts)))
    arguments["target_argmax_ptr"] = np.maximum(argmax, 0).astype(np.int64)
    if variant == "all_greedy":
        arguments["is_greedy_ptr"] = None
    if variant != "synthetic":
        arguments["uniform_probs_ptr"] = None
    return arguments


def _probs(rng: np.random.Generator, tokens: int, vocabulary: int) -> tuple[Array, Array]:
    logits = random_logits(rng, tokens, vocabulary)
    return softmax(logits), softmax(logits + rng.standard_normal((tokens, vocabulary), dtype=np.float32))


@maker("draft", "one_hot", "synthetic")
def rejection_random_sample(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    arguments = _rejection(rng, size, variant == "synthetic")
    tokens = len(arguments["draft_token_ids_ptr"])
    target, draft = _probs(rng, tokens, size.vocabulary)
    return arguments | {
        "target_probs_ptr": target,
        "draft_probs_ptr": None if variant == "one_hot" else draft,
        "recovered_token_ids_ptr": rng.integers(0, size.vocabulary, tokens).astype(np.int32),
        "vocab_size": size.vocabulary,
        "NO_DRAFT_PROBS": variant == "one_hot",
    }


@maker("draft", "one_hot", "float64", "no_mass", "nan")
def sample_recovered_tokens(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    cu, tokens = _flat(rng, size)
    target, draft = _probs(rng, tokens, size.vocabulary)
    inv_q = (1.0 / rng.exponential(size=(size.requests, size.vocabulary))).astype(np.float32)
    if variant == "no_mass":
        draft[:] = target
        target[1::2] = 0.0
    if variant == "nan":
        target[::2, ::2] = np.nan
        draft[1::2] = np.nan
    drafts = rng.integers(0, size.vocabulary, tokens).astype(np.int32)
    drafts[2::4] = -1
    return {
        "output_token_ids_ptr": np.full(tokens, POISON, np.int32),
        "cu_num_draft_tokens_ptr": cu,
        "draft_token_ids_ptr": drafts,
        "draft_probs_ptr": None if variant == "one_hot" else draft,
        "target_probs_ptr": target,
        "inv_q_ptr": inv_q.astype(np.float64) if variant == "float64" else inv_q,
        "vocab_size": size.vocabulary,
        "BLOCK_SIZE": 8192,
        "NO_DRAFT_PROBS": variant == "one_hot",
        "USE_FP64_GUMBEL": variant == "float64",
    }


@maker("padded")
def eagle_prepare_inputs_padded(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    counts, padding = draft_counts(rng, size), 2
    return {
        "cu_num_draft_tokens_ptr": np.cumsum(counts).astype(np.int32),
        "valid_sampled_tokens_count_ptr": rng.integers(0, counts + 2).astype(np.int32),
        "query_start_loc_gpu_ptr": np.concatenate(([0], np.cumsum(counts + 1))).astype(np.int32),
        "token_indices_to_sample_ptr": np.full(size.requests + padding, POISON, np.int32),
        "num_rejected_tokens_gpu_ptr": np.full(size.requests + padding, POISON, np.int32),
        "num_reqs": size.requests,
    }


@maker("padded")
def eagle_prepare_next_token_padded(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    columns = size.drafts + 1
    sampled = rng.integers(0, size.vocabulary, (size.requests, columns)).astype(np.int32)
    sampled[np.arange(columns) >= rng.integers(0, columns + 1, (size.requests, 1))] = -1
    sampled[rng.random(sampled.shape) < 0.1] = size.vocabulary
    return {
        "sampled_token_ids_ptr": sampled,
        "discard_request_mask_ptr": rng.random(size.requests) < 0.3,
        "backup_next_token_ids_ptr": rng.integers(0, size.vocabulary, size.requests).astype(np.int32),
        "next_token_ids_ptr": np.full(size.requests + 1, POISON, np.int32),
        "valid_sampled_tokens_count_ptr": np.full(size.requests + 1, POISON, np.int32),
        "vocab_size": size.vocabulary,
        "num_sampled_tokens_per_req": columns,
        "num_reqs": size.requests,
        "stride_sampled_token_ids": columns,
        "BLOCK_SIZE_TOKENS": 256,
    }


@maker("padded")
def eagle_step_slot_mapping_metadata(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    limit, block_size = 256, 16
    positions = rng.integers(0, limit - 1, size.requests)
    positions[-1] = limit - 1
    return {
        "positions_ptr": positions,
        "block_table_ptr": rng.integers(0, 1000, (size.requests, limit // block_size)).astype(np.int32),
        "block_table_stride": limit // block_size,
        "seq_lens_ptr": (positions + 1).astype(np.int32),
        "out_clamped_positions_ptr": np.full(size.requests + 1, POISON, np.int64),
        "out_slot_mapping_ptr": np.full(size.requests + 3, POISON, np.int64),
        "block_size": block_size,
        "max_model_len": limit,
        "n_blocks_per_req": limit // block_size,
        "PAD_ID": -1,
        "batch_size": size.requests,
    }


@maker("shifted", "unshifted")
def copy_and_expand_eagle_inputs(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    shift, new_slots = variant == "shifted", 3
    lengths = rng.integers(1, 300, size.requests)
    starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    tokens = int(starts[-1])
    slots = tokens + size.requests * (new_slots - (1 if shift else 0)) + 4
    return {
        "target_token_ids_ptr": rng.integers(0, size.vocabulary, tokens).astype(np.int32),
        "target_positions_ptr": rng.integers(0, 10**6, tokens),
        "next_token_ids_ptr": rng.integers(0, size.vocabulary, size.requests).astype(np.int32),
        "out_input_ids_ptr": np.full(slots, POISON, np.int32),
        "out_positions_ptr": np.full(slots, POISON, np.int64),
        "out_is_rejected_token_mask_ptr": rng.random(slots) < 0.5,
        "out_is_masked_token_mask_ptr": rng.random(slots) < 0.5,
        "out_new_token_indices_ptr": np.full(size.requests * new_slots, POISON, np.int32),
        "out_hidden_state_mapping_ptr": np.full(tokens, POISON, np.int32),
        "query_start_loc_ptr": starts,
        "query_end_loc_ptr": (starts[1:] - 1 - rng.integers(0, lengths)).astype(np.int32),
        "padding_token_id": 5,
        "parallel_drafting_token_id": 6,
        "total_input_tokens": tokens,
        "num_padding_slots_per_request": new_slots,
        "shift_input_ids": shift,
        "BLOCK_SIZE_TOKENS": 64,
    }


@maker("one_rank", "four_ranks")
def compute_slot_mapping(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    lengths = rng.integers(0, 50, size.requests)
    starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    tokens = int(starts[-1])
    ranks = 4 if variant == "four_ranks" else 1
    positions = np.concatenate([np.arange(n) + rng.integers(0, 100) for n in lengths]).astype(np.int64)
    return {
        "num_tokens": tokens,
        "max_num_tokens": tokens + 7,
        "query_start_loc_ptr": starts,
        "positions_ptr": positions,
        "block_table_ptr": rng.integers(0, 1000, (size.requests + 1, 12)).astype(np.int32),
        "block_table_stride": 12,
        "slot_mapping_ptr": np.full(tokens + 9, POISON, np.int64),
        "KV_CACHE_BLOCK_SIZE": 16,
        "TOTAL_CP_WORLD_SIZE": ranks,
        "TOTAL_CP_RANK": ranks // 2,
        "CP_KV_CACHE_INTERLEAVE_SIZE": 2 if ranks > 1 else 1,
        "PAD_ID": -1,
        "BLOCK_SIZE": 1024,
    }

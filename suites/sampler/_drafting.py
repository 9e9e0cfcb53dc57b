"""Arguments of the ops that prepare a draft step, by the names of their contracts."""

from __future__ import annotations

from typing import Any

import numpy as np

STEP_LIMIT = 64
"""Maximum sequence length of `step_arguments`."""
STEP_BLOCK = 16
"""Tokens per block of `step_arguments`."""


def inputs_arguments(counts: Any, valid: Any, extra_tokens: Any = 0) -> dict[str, Any]:
    """Return requests with `counts` draft tokens and `valid` emitted tokens; prefills have more query tokens."""
    counts = np.asarray(counts, dtype=np.int64)
    return {
        "cu_num_draft_tokens_ptr": np.cumsum(counts),
        "valid_sampled_tokens_count_ptr": np.asarray(valid, dtype=np.int64),
        "query_start_loc_gpu_ptr": np.concatenate([[0], np.cumsum(counts + 1 + extra_tokens)]),
        "num_reqs": len(counts),
    }


def random_inputs(rng: np.random.Generator, counts: Any) -> dict[str, Any]:
    """Return requests with `counts` draft tokens; those without are decodes or prefills of up to 9 tokens."""
    counts = np.asarray(counts, dtype=np.int64)
    valid = rng.integers(1, counts + 2)
    # Discarded requests have no valid token; mostly their prompt goes on in the next step, without drafts.
    valid[rng.random(len(counts)) < np.where(counts == 0, 0.3, 0.1)] = 0
    return inputs_arguments(counts, valid, np.where(counts == 0, rng.integers(0, 9, size=len(counts)), 0))


def next_token_arguments(rows: Any, discarded: Any = None, backup: Any = None, vocab: int = 100) -> dict[str, Any]:
    """Return requests with the sampled tokens `rows`, [B, T]; the mask `discarded` and `backup` tokens are [B]."""
    rows = np.asarray(rows)
    b = len(rows)
    return {
        "sampled_token_ids_ptr": rows,
        "discard_request_mask_ptr": np.zeros(b, dtype=bool) if discarded is None else np.asarray(discarded),
        "backup_next_token_ids_ptr": np.arange(b) + 50 if backup is None else np.asarray(backup),
        "vocab_size": vocab,
        "num_sampled_tokens_per_req": rows.shape[1],
        "num_reqs": b,
        "BLOCK_SIZE_TOKENS": 1 << max(rows.shape[1] - 1, 0).bit_length(),
    }


def step_arguments(rng: np.random.Generator, positions: Any, rows: int = 0, **changes: Any) -> dict[str, Any]:
    """Return requests at `positions`, each with its own blocks, and `rows` padding rows of the slot mapping."""
    positions = np.asarray(positions, dtype=np.int64)
    b = len(positions)
    columns = STEP_LIMIT // STEP_BLOCK
    return {
        "positions_ptr": positions,
        "block_table_ptr": (rng.permutation(b * columns) + 1).reshape(b, columns),
        "seq_lens_ptr": np.minimum(positions + 1, STEP_LIMIT),
        "out_slot_mapping_ptr": np.full(b + rows, -5),
        "block_size": STEP_BLOCK,
        "max_model_len": STEP_LIMIT,
        "n_blocks_per_req": columns,
        "PAD_ID": -1,
        "batch_size": b,
        **changes,
    }


def expanded_arguments(
    rng: np.random.Generator, lengths: Any, rejected: Any = 0, p: int = 2, shift: bool = True, **changes: Any
) -> dict[str, Any]:
    """Return requests with `lengths` target tokens, the last `rejected` of them invalid, and P new slots each."""
    lengths = np.asarray(lengths, dtype=np.int64)
    rejected = np.minimum(np.broadcast_to(rejected, lengths.shape), np.maximum(lengths - 1, 0))
    starts = np.concatenate([[0], np.cumsum(lengths)])
    first = rng.integers(0, 500, size=len(lengths))
    positions = [np.arange(f, f + n) for f, n in zip(first, lengths, strict=True)]
    total = int(lengths.sum())
    return {
        "target_token_ids_ptr": rng.integers(0, 900, size=total),
        "target_positions_ptr": np.concatenate([*positions, np.zeros(0, dtype=np.int64)]),
        "next_token_ids_ptr": rng.integers(1000, 2000, size=len(lengths)),
        "query_start_loc_ptr": starts,
        "query_end_loc_ptr": starts[1:] - 1 - rejected,
        "padding_token_id": 7001,
        "parallel_drafting_token_id": 7002,
        "total_input_tokens": total,
        "num_padding_slots_per_request": p,
        "shift_input_ids": shift,
        "BLOCK_SIZE_TOKENS": 64,
        **changes,
    }


def flash_arguments(
    rng: np.random.Generator, lengths: Any, rejected: Any = 0, drafts: int = 3, **changes: Any
) -> dict[str, Any]:
    """Return requests with `lengths` target tokens, the last `rejected` of them invalid, and `drafts` mask tokens each.

    Without rejected tokens (None) the call has no counts of them.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    block = changes.get("block_size", 16)
    columns = changes.pop("columns", max(8, -(-int(max([0, *lengths]) + drafts + 1) // block) + 1))
    first = rng.integers(0, block * columns - lengths - drafts)
    positions = [np.arange(f, f + n) for f, n in zip(first, lengths, strict=True)]
    total = int(lengths.sum())
    is_counted = rejected is not None
    return {
        "next_token_ids_ptr": rng.integers(1000, 2000, size=len(lengths)),
        "target_positions_ptr": np.concatenate([*positions, np.zeros(0, dtype=np.int64)]),
        "block_table_ptr": (rng.permutation(len(lengths) * columns) + 1).reshape(len(lengths), columns),
        "query_start_loc_ptr": np.concatenate([[0], np.cumsum(lengths)]),
        "num_rejected_tokens_ptr": np.broadcast_to(rejected, lengths.shape).copy() if is_counted else None,
        "parallel_drafting_token_id": 7002,
        "block_size": block,
        "num_query_per_req": 1 + drafts,
        "num_speculative_tokens": drafts,
        "total_input_tokens": total,
        "BLOCK_SIZE": 64,
        "HAS_NUM_REJECTED": is_counted,
        **changes,
    }


def slot_arguments(rng: np.random.Generator, lengths: Any, tail: int = 0, **changes: Any) -> dict[str, Any]:
    """Return requests with `lengths` scheduled tokens at consecutive positions, and `tail` padding tokens."""
    lengths = np.asarray(lengths, dtype=np.int64)
    block, columns = changes.pop("block", 16), changes.pop("columns", 8)
    ranks = changes.get("TOTAL_CP_WORLD_SIZE", 1)
    room = block * ranks * columns
    starts = [int(rng.integers(0, max(room - n, 0) + 1)) for n in lengths]
    positions = [np.arange(s, s + n) for s, n in zip(starts, lengths, strict=True)]
    return {
        "num_tokens": int(lengths.sum()),
        "max_num_tokens": int(lengths.sum()) + tail,
        "query_start_loc_ptr": np.concatenate([[0], np.cumsum(lengths)]),
        "positions_ptr": np.concatenate([*positions, np.zeros(0, dtype=np.int64)]),
        "block_table_ptr": (rng.permutation(len(lengths) * columns) + 1).reshape(len(lengths), columns),
        "KV_CACHE_BLOCK_SIZE": block,
        "TOTAL_CP_WORLD_SIZE": 1,
        "TOTAL_CP_RANK": 0,
        "CP_KV_CACHE_INTERLEAVE_SIZE": 1,
        "PAD_ID": -1,
        **changes,
    }

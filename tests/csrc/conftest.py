"""Adversarial calls of every op on packed batches, as plain NumPy arrays by parameter name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Rng = np.random.Generator
Call = dict[str, Any]


def counts(rng: Rng, most: int = 6) -> np.ndarray[Any, Any]:
    """Draft tokens of up to six requests, some without any; now and then as many as engines allow."""
    if rng.random() < 0.05:
        most = 128
    return rng.integers(0, most + 1, size=rng.integers(0, 7)) * (rng.random() < 0.95)


def draft_ids(rng: Rng, n: int, vocab: int) -> np.ndarray[Any, Any]:
    """Mostly tokens, among them placeholders and ids outside the vocabulary on both sides."""
    wild = rng.choice([-1, -7, vocab, vocab + 3, 2**31 - 1], size=n)
    return np.where(rng.random(n) < 0.2, wild, rng.integers(0, vocab, size=n))


def probabilities(rng: Rng, n: int, vocab: int) -> np.ndarray[Any, Any]:
    """Rows of eighths, so that equal and exact ratios are common, with zeros, NaN and whole rows of either."""
    rows = rng.integers(0, 9, size=(n, vocab)) / 8 * (rng.random((n, vocab)) < 0.7)
    rows[rng.random((n, vocab)) < 0.03] = np.nan
    rows[rng.random(n) < 0.1] = rng.choice([0.0, np.nan, 0.125])
    rows[rng.random((n, vocab)) < 0.02] = np.inf
    return rows


def uniforms(rng: Rng, n: int) -> np.ndarray[Any, Any]:
    """Eighths and thirds, which meet ratios exactly, the ends of [0, 1), and what float32 would round away."""
    special = rng.choice([0.0, 1 / 3, 0.5, 0.5 + 2**-40, 0.5 - 2**-40, 1 - 2**-53, np.nan], size=n)
    return np.where(rng.random(n) < 0.5, special, rng.integers(0, 9, size=n) / 8)


def drafts(rng: Rng) -> tuple[Call, int, int, int]:
    """Common arguments of the three rejection ops, with the numbers of requests, tokens and the vocabulary."""
    k = counts(rng)
    n, vocab = int(k.sum()), int(rng.choice([1, 2, 7, 33]))
    return {"cu_num_draft_tokens_ptr": np.cumsum(k), "draft_token_ids_ptr": draft_ids(rng, n, vocab)}, len(k), n, vocab


def verification(rng: Rng) -> tuple[Call, int, int, int]:
    call, b, n, vocab = drafts(rng)
    most = int(np.diff(call["cu_num_draft_tokens_ptr"], prepend=0).max(initial=0)) + int(rng.integers(0, 3))
    synthetic = bool(rng.random() < 0.4)
    rates = rng.choice([0.0, 1.0, 0.5, 1 / 3, np.nan], size=most + rng.integers(0, 3))
    call |= {
        "output_token_ids_ptr": np.full((b, most + 1), -1),
        "bonus_token_ids_ptr": rng.integers(0, 999, size=(b, 1)),
        "is_greedy_ptr": rng.random(b) < 0.5,
        "max_spec_len": most,
        "uniform_probs_ptr": uniforms(rng, n),
        "synthetic_conditional_rates_ptr": rates if synthetic else None,
        "SYNTHETIC_MODE": synthetic,
    }
    return call, b, n, vocab


def rejection_greedy_sample(rng: Rng) -> Call:
    call, _, n, vocab = verification(rng)
    ids = call["draft_token_ids_ptr"]
    call["target_argmax_ptr"] = np.where(rng.random(n) < 0.7, ids, rng.integers(0, vocab, size=n))
    if rng.random() < 0.3:
        call["is_greedy_ptr"] = None
    return call


def rejection_random_sample(rng: Rng) -> Call:
    call, _, n, vocab = verification(rng)
    absent = bool(rng.random() < 0.3)
    return call | {
        "draft_probs_ptr": None if absent else probabilities(rng, n, vocab),
        "target_probs_ptr": probabilities(rng, n, vocab),
        "recovered_token_ids_ptr": rng.integers(0, 999, size=n),
        "vocab_size": vocab,
        "NO_DRAFT_PROBS": absent,
    }


def sample_recovered_tokens(rng: Rng) -> Call:
    call, b, n, vocab = drafts(rng)
    absent = bool(rng.random() < 0.3)
    noise = rng.choice([0.25, 0.5, 1.0, 1 + 2**-30, 3.0, 1e30], size=(b, vocab))
    return call | {
        "output_token_ids_ptr": np.full(n, -9),
        "draft_probs_ptr": None if absent else probabilities(rng, n, vocab),
        "target_probs_ptr": probabilities(rng, n, vocab),
        "inv_q_ptr": noise,
        "vocab_size": vocab,
        "BLOCK_SIZE": 64,
        "NO_DRAFT_PROBS": absent,
        "USE_FP64_GUMBEL": False,
    }


def expand_batch_to_tokens(rng: Rng) -> Call:
    k = counts(rng)
    values = rng.choice([0, 1, 7, 2**24 + 1, -3], size=len(k))
    return {
        "output_ptr": np.full(int(k.sum()) + rng.integers(0, 3), 5),
        "input_ptr": values,
        "cu_num_tokens_ptr": np.cumsum(k),
        "replace_from": float(rng.choice([0, 1, 0.5, np.nan])),
        "replace_to": float(rng.integers(0, 2)),
        "MAX_NUM_TOKENS": 128,
    }


def eagle_prepare_inputs_padded(rng: Rng) -> Call:
    k = counts(rng)
    b, spare = len(k), int(rng.integers(0, 3))
    lengths = k + rng.integers(1, 4, size=b)
    padding = np.zeros(spare, np.int64)
    return {
        "cu_num_draft_tokens_ptr": np.concatenate([np.cumsum(k), padding]),
        "valid_sampled_tokens_count_ptr": np.concatenate([rng.integers(0, k + 2), padding]),
        "query_start_loc_gpu_ptr": np.concatenate([[0], np.cumsum(lengths), padding]),
        "token_indices_to_sample_ptr": np.full(b + spare, -9),
        "num_rejected_tokens_gpu_ptr": np.full(b + spare, -9),
        "num_reqs": b,
    }


def eagle_prepare_next_token_padded(rng: Rng) -> Call:
    b, t, spare, vocab = (int(x) for x in rng.integers((0, 0, 0, 1), (7, 8, 3, 40)))
    return {
        "sampled_token_ids_ptr": draft_ids(rng, (b + spare) * (t + spare), vocab).reshape(b + spare, t + spare),
        "discard_request_mask_ptr": rng.random(b + spare) < 0.3,
        "backup_next_token_ids_ptr": rng.integers(-1, 99, size=b + spare),
        "next_token_ids_ptr": np.full(b + spare, -9),
        "valid_sampled_tokens_count_ptr": np.full(b + spare, -9),
        "vocab_size": vocab,
        "num_sampled_tokens_per_req": t,
        "num_reqs": b,
        "BLOCK_SIZE_TOKENS": 8,
    }


def eagle_step_slot_mapping_metadata(rng: Rng) -> Call:
    b, spare, columns = (int(x) for x in rng.integers((0, 0, 1), (7, 3, 5)))
    size, limit = int(rng.choice([1, 3, 16])), int(rng.integers(1, 90))
    return {
        "positions_ptr": rng.choice([-2, -1, 0, limit - 2, limit - 1, limit, 40], size=b + spare),
        "block_table_ptr": rng.integers(0, 99, size=(b + spare, columns + spare)),
        "seq_lens_ptr": rng.integers(0, limit + 2, size=b + spare),
        "out_clamped_positions_ptr": np.full(b + spare, -9),
        "out_slot_mapping_ptr": np.full(b + spare, -9),
        "block_size": size,
        "max_model_len": limit,
        "n_blocks_per_req": columns,
        "PAD_ID": -1,
        "batch_size": b,
    }


def copy_and_expand_eagle_inputs(rng: Rng) -> Call:
    lengths = counts(rng) + 1
    b, n, p, shift = len(lengths), int(lengths.sum()), int(rng.integers(1, 4)), bool(rng.random() < 0.5)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    slots = n + b * (p - shift) + int(rng.integers(0, 3))
    return {
        "target_token_ids_ptr": rng.integers(0, 999, size=n),
        "target_positions_ptr": rng.integers(0, 99, size=n),
        "next_token_ids_ptr": rng.integers(0, 999, size=b),
        "out_input_ids_ptr": np.full(slots, -9),
        "out_positions_ptr": np.full(slots, -9),
        "out_is_rejected_token_mask_ptr": rng.random(slots) < 0.5,
        "out_is_masked_token_mask_ptr": rng.random(slots) < 0.5,
        "out_new_token_indices_ptr": np.full(b * p, -9),
        "out_hidden_state_mapping_ptr": np.full(n, -9),
        "query_start_loc_ptr": starts,
        "query_end_loc_ptr": rng.integers(starts[:-1], starts[1:]) if b else np.zeros(0, np.int64),
        "padding_token_id": 7001,
        "parallel_drafting_token_id": 7002,
        "total_input_tokens": n,
        "num_padding_slots_per_request": p,
        "shift_input_ids": shift,
        "BLOCK_SIZE_TOKENS": 64,
    }


def compute_slot_mapping(rng: Rng) -> Call:
    lengths = counts(rng)
    n, tail, spare = int(lengths.sum()) + int(rng.integers(0, 3)), *(int(x) for x in rng.integers(0, 4, size=2))
    ranks, columns = int(rng.choice([1, 2, 3])), int(rng.integers(1, 5))
    size, run = int(rng.choice([1, 4, 16])), int(rng.choice([1, 2, 4]))
    return {
        "num_tokens": n,
        "max_num_tokens": n + tail,
        "query_start_loc_ptr": np.concatenate([[0], np.cumsum(lengths)]),
        "positions_ptr": rng.integers(-2, size * ranks * columns + 3, size=n + spare),
        "block_table_ptr": rng.integers(0, 2**20, size=(len(lengths) + spare, columns)),
        "slot_mapping_ptr": np.full(n + tail + spare, -9),
        "KV_CACHE_BLOCK_SIZE": size,
        "TOTAL_CP_WORLD_SIZE": ranks,
        "TOTAL_CP_RANK": int(rng.integers(0, ranks)),
        "CP_KV_CACHE_INTERLEAVE_SIZE": run,
        "PAD_ID": -1,
        "BLOCK_SIZE": 64,
    }


CALLS: tuple[Callable[[Rng], Call], ...] = (
    compute_slot_mapping,
    copy_and_expand_eagle_inputs,
    eagle_prepare_inputs_padded,
    eagle_prepare_next_token_padded,
    eagle_step_slot_mapping_metadata,
    expand_batch_to_tokens,
    rejection_greedy_sample,
    rejection_random_sample,
    sample_recovered_tokens,
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "hostile_call" in metafunc.fixturenames:
        metafunc.parametrize("hostile_call", CALLS, ids=lambda call: call.__name__)

"""Adversarial calls of every op on packed batches: the suite's calls with values and sizes that break kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from verispec.suites.sampler._calls import BatchShape, make

Rng = np.random.Generator
Call = dict[str, Any]
Disturb = Callable[[Rng, Call, BatchShape], None]

DISTURBANCES: dict[str, Disturb] = {}
"""Changes of the suite's call, by op."""


def disturbs(*ops: str) -> Callable[[Disturb], Disturb]:
    def register(disturb: Disturb) -> Disturb:
        DISTURBANCES.update(dict.fromkeys(ops, disturb))
        return disturb

    return register


def adversarial_call(op: str, seed: int) -> Call:
    """Return a call of `op` for its oracle: up to six requests, values that are wrong or at the edge."""
    rng = np.random.default_rng(seed)
    most = 128 if rng.random() < 0.05 else 6
    counts = rng.integers(0, most + 1, size=rng.integers(0, 7)) * (rng.random() < 0.95)
    modes = {"draft": bool(rng.random() < 0.7), "synthetic": bool(rng.random() < 0.4)}
    shape = BatchShape(tuple(counts.tolist()), int(rng.choice([1, 2, 7, 33])), **modes)
    made = make(op, int(rng.integers(2**31)), shape)
    call: Call = {name: np.full(wanted, -9) for name, wanted in made.shapes.items()} | made.values
    DISTURBANCES[op](rng, call, shape)
    return call


def wild_ids(rng: Rng, ids: Any, vocab: int) -> Any:
    """Replace a fifth of the tokens by padding and by ids outside the vocabulary on both sides."""
    wild = rng.choice([-1, -7, vocab, vocab + 3, 2**31 - 1], size=ids.shape)
    return np.where(rng.random(ids.shape) < 0.2, wild, ids)


def wild_rows(rng: Rng, shape: tuple[int, ...]) -> Any:
    """Return rows of eighths, so that equal and exact ratios are common, with zeros, NaN and whole rows of either."""
    n, vocab = shape
    rows = rng.integers(0, 9, size=shape) / 8 * (rng.random(shape) < 0.7)
    rows[rng.random((n, vocab)) < 0.03] = np.nan
    rows[rng.random(n) < 0.1] = rng.choice([0.0, np.nan, 0.125])
    rows[rng.random((n, vocab)) < 0.02] = np.inf
    return rows


def wild_uniforms(rng: Rng, n: int) -> Any:
    """Return eighths and thirds, which meet ratios exactly, the ends of [0, 1), and what float32 would round away."""
    special = rng.choice([0.0, 1 / 3, 0.5, 0.5 + 2**-40, 0.5 - 2**-40, 1 - 2**-53, np.nan], size=n)
    return np.where(rng.random(n) < 0.5, special, rng.integers(0, 9, size=n) / 8)


def spare_rows(rng: Rng, call: Call, rows: int, *names: str) -> None:
    """Append `rows` rows that no request owns."""
    for name in names:
        values = call[name]
        more = rng.integers(0, 40, size=(rows, *values.shape[1:])).astype(values.dtype)
        call[name] = np.concatenate([values, more])


@disturbs("rejection_greedy_sample", "rejection_random_sample", "sample_recovered_tokens")
def _rejection(rng: Rng, call: Call, shape: BatchShape) -> None:
    n, b = sum(shape.counts), shape.requests
    call["draft_token_ids_ptr"] = wild_ids(rng, call["draft_token_ids_ptr"], shape.vocab)
    for name in ("draft_probs_ptr", "target_probs_ptr"):
        if call.get(name) is not None:
            call[name] = wild_rows(rng, call[name].shape)
    if "inv_q_ptr" in call:
        call["inv_q_ptr"] = rng.choice([0.25, 0.5, 1.0, 1 + 2**-30, 3.0, 1e30], size=(b, shape.vocab))
        call |= {"output_token_ids_ptr": np.full(n, -9), "BLOCK_SIZE": 64}
        return
    call["max_spec_len"] = most = max([0, *shape.counts]) + int(rng.integers(0, 3))
    call["output_token_ids_ptr"] = np.full((b, most + 1), -1)
    call["bonus_token_ids_ptr"] = rng.integers(0, 999, size=(b, 1))
    call["is_greedy_ptr"] = rng.random(b) < 0.5
    call["uniform_probs_ptr"] = wild_uniforms(rng, n)
    if call["SYNTHETIC_MODE"]:
        rates = rng.choice([0.0, 1.0, 0.5, 1 / 3, np.nan], size=most + rng.integers(0, 3))
        call["synthetic_conditional_rates_ptr"] = rates
    if "recovered_token_ids_ptr" in call:
        call["recovered_token_ids_ptr"] = rng.integers(0, 999, size=n)
    elif rng.random() < 0.3:
        call["is_greedy_ptr"] = None


@disturbs("expand_batch_to_tokens")
def _expand(rng: Rng, call: Call, shape: BatchShape) -> None:
    call["input_ptr"] = rng.choice([0, 1, 7, 2**24 + 1, -3], size=shape.requests)
    call["output_ptr"] = np.full(sum(shape.counts) + rng.integers(0, 3), 5)
    call["replace_from"] = float(rng.choice([0, 1, 0.5, np.nan]))
    call["replace_to"] = float(rng.integers(0, 2))


@disturbs("eagle_prepare_inputs_padded")
def _prepare_inputs(rng: Rng, call: Call, shape: BatchShape) -> None:
    spare, counts = int(rng.integers(0, 3)), np.asarray(shape.counts, np.int64)
    call["valid_sampled_tokens_count_ptr"] = rng.integers(0, counts + 2)
    inputs = ("cu_num_draft_tokens_ptr", "valid_sampled_tokens_count_ptr", "query_start_loc_gpu_ptr")
    for name in inputs:
        call[name] = np.concatenate([call[name], np.zeros(spare, np.int64)])
    rows = shape.requests + spare
    call |= {name: np.full(rows, -9) for name in ("token_indices_to_sample_ptr", "num_rejected_tokens_gpu_ptr")}


@disturbs("eagle_prepare_next_token_padded")
def _next_token(rng: Rng, call: Call, shape: BatchShape) -> None:
    spare, tokens = int(rng.integers(0, 3)), "sampled_token_ids_ptr"
    spare_rows(rng, call, spare, tokens, "discard_request_mask_ptr", "backup_next_token_ids_ptr")
    ids = rng.integers(0, shape.vocab, size=(len(call[tokens]), call[tokens].shape[1] + spare))
    call["num_sampled_tokens_per_req"] = int(rng.integers(0, call[tokens].shape[1] + 1))
    call[tokens] = wild_ids(rng, ids, shape.vocab)
    call["discard_request_mask_ptr"] = rng.random(len(ids)) < 0.3
    call |= {name: np.full(len(ids), -9) for name in ("next_token_ids_ptr", "valid_sampled_tokens_count_ptr")}


@disturbs("eagle_step_slot_mapping_metadata")
def _step(rng: Rng, call: Call, shape: BatchShape) -> None:
    spare, columns = (int(x) for x in rng.integers((0, 1), (3, 5)))
    rows, limit = shape.requests + spare, int(rng.integers(1, 90))
    call["block_size"], call["max_model_len"] = int(rng.choice([1, 3, 16])), limit
    call["positions_ptr"] = rng.choice([-2, -1, 0, limit - 2, limit - 1, limit, 40], size=rows)
    call["seq_lens_ptr"] = rng.integers(0, limit + 2, size=rows)
    call["n_blocks_per_req"] = columns
    call["block_table_ptr"] = rng.integers(0, 99, size=(rows, columns + spare))
    call |= {name: np.full(rows, -9) for name in ("out_clamped_positions_ptr", "out_slot_mapping_ptr")}


@disturbs("copy_and_expand_eagle_inputs")
def _expanded_inputs(rng: Rng, call: Call, shape: BatchShape) -> None:
    call["num_padding_slots_per_request"] = p = int(rng.integers(1, 4))
    tokens = call["total_input_tokens"]
    slots = tokens + shape.requests * (p - call["shift_input_ids"]) + int(rng.integers(0, 3))
    call["target_positions_ptr"] = rng.integers(0, 99, size=tokens)
    call |= {name: np.full(slots, -9) for name in ("out_input_ids_ptr", "out_positions_ptr")}
    masks = ("out_is_rejected_token_mask_ptr", "out_is_masked_token_mask_ptr")
    call |= {name: rng.random(slots) < 0.5 for name in masks}
    call["out_new_token_indices_ptr"] = np.full(shape.requests * p, -9)
    call["out_hidden_state_mapping_ptr"] = np.full(tokens, -9)


@disturbs("copy_and_expand_dflash_inputs")
def _flash_inputs(rng: Rng, call: Call, shape: BatchShape) -> None:
    drafts, spare, columns = (int(x) for x in rng.integers((1, 0, 1), (5, 3, 5)))
    requests, tokens, size = shape.requests, call["total_input_tokens"], int(rng.choice([1, 3, 16]))
    call |= {"num_query_per_req": drafts + 1, "num_speculative_tokens": drafts, "block_size": size}
    call["target_positions_ptr"] = rng.integers(0, size * columns + 3, size=tokens)
    call["block_table_ptr"] = rng.integers(0, 2**20, size=(requests + spare, columns))
    if rng.random() < 0.3:  # some requests have no tokens
        call["query_start_loc_ptr"] = np.sort(rng.integers(0, tokens + 1, size=requests + 1))
    call["num_rejected_tokens_ptr"] = rng.integers(0, 9, size=requests)
    contexts = ("out_context_positions_ptr", "out_context_slot_mapping_ptr")
    queries = ("out_input_ids_ptr", "out_query_positions_ptr", "out_query_slot_mapping_ptr")
    call |= {name: np.full(tokens + spare, -9) for name in contexts}
    call |= {name: np.full(requests * (drafts + 1) + spare, -9) for name in queries}
    call["out_token_indices_ptr"] = np.full(requests * drafts, -9)


@disturbs("compute_slot_mapping")
def _slots(rng: Rng, call: Call, shape: BatchShape) -> None:
    tail, spare = (int(x) for x in rng.integers(0, 4, size=2))
    ranks, columns = int(rng.choice([1, 2, 3])), int(rng.integers(1, 5))
    size, run = int(rng.choice([1, 4, 16])), int(rng.choice([1, 2, 4]))
    call["num_tokens"] = n = call["num_tokens"] + int(rng.integers(0, 3))
    call["max_num_tokens"] = n + tail
    call["positions_ptr"] = rng.integers(-2, size * ranks * columns + 3, size=n + spare)
    call["block_table_ptr"] = rng.integers(0, 2**20, size=(shape.requests + spare, columns))
    call["slot_mapping_ptr"] = np.full(n + tail + spare, -9)
    call |= {"KV_CACHE_BLOCK_SIZE": size, "CP_KV_CACHE_INTERLEAVE_SIZE": run, "BLOCK_SIZE": 64}
    call |= {"TOTAL_CP_WORLD_SIZE": ranks, "TOTAL_CP_RANK": int(rng.integers(0, ranks))}


@disturbs("build_draft_tree")
def _build_tree(rng: Rng, call: Call, shape: BatchShape) -> None:
    requests, nodes = call["retrieve_next_token"].shape
    candidates = call["topk"] * (call["topk"] * call["depth"] + 2)
    for name in ("parent_list", "selected_index"):
        wild = rng.integers(-3, candidates + 1, size=call[name].shape)
        call[name] = np.where(rng.random(wild.shape) < 0.15, wild, call[name])
    call["depth"] = int(rng.integers(1, call["depth"] + 3))
    spare = int(rng.integers(0, 3))
    call["tree_mask"] = rng.random(len(call["tree_mask"]) + spare) < 0.5
    call |= {"positions": np.full(requests * nodes, -9), "retrieve_index": np.full((requests, nodes), -9)}
    for name in ("retrieve_next_token", "retrieve_next_sibling"):
        call[name] = rng.integers(-3, 9, size=(requests, nodes))


@disturbs("verify_tree_greedy", "verify_tree_sampled", "verify_tree_typical")
def _verify_tree(rng: Rng, call: Call, shape: BatchShape) -> None:
    requests, nodes = call["candidates"].shape
    call |= {"predicts": np.full(requests * nodes, -9), "accept_token_num": np.full(requests, -9)}
    call["accept_index"] = np.full((requests, int(rng.integers(1, nodes + 3))), -9)
    call["candidates"] = wild_ids(rng, call["candidates"], shape.vocab)
    for name, most in (
        ("retrieve_next_token", nodes),
        ("retrieve_next_sibling", nodes),
        ("retrieve_index", requests * nodes),
    ):
        wild = rng.integers(-3, most + 3, size=(requests, nodes))
        call[name] = np.where(rng.random(wild.shape) < 0.1, wild, call[name])
    if "target_predict" in call:
        call["target_predict"] = wild_ids(rng, call["target_predict"], shape.vocab)
        return
    for name in ("target_probs", "draft_probs"):
        if call.get(name) is not None:
            call[name] = wild_rows(rng, (requests * nodes, shape.vocab)).reshape(requests, nodes, shape.vocab)
    call["uniform_samples"] = wild_uniforms(rng, requests * nodes).reshape(requests, nodes)
    call["uniform_samples_for_final_sampling"] = wild_uniforms(rng, requests)
    if "threshold_acc" in call:
        call |= {
            "threshold_single": float(rng.choice([0.0, 0.5, 1 / 3])),
            "threshold_acc": float(rng.choice([0.0, 0.7])),
        }

"""A call of every op at a wanted size, in values that production could pass: what the cases of ANY-* are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from verispec.cases.batches import random_batch
from verispec.cases.request_state import RequestBatch, normal, random_requests
from verispec.judge import Compare
from verispec.reference import oracle
from verispec.suites.sampler import _fused, _rejection, _request_state

Rng = np.random.Generator


@dataclass(frozen=True, slots=True)
class BatchShape:
    """Requested form of a call: drafts of each request, vocabulary, and the op's modes.

    `exact` asks for values whose quotients and products float32 holds, so that an equality is one everywhere.
    """

    counts: tuple[int, ...] = (3, 1, 5, 2)
    vocab: int = 11
    draft: bool = True
    synthetic: bool = False
    exact: bool = False

    @property
    def requests(self) -> int:
        return len(self.counts)


@dataclass(slots=True)
class MadeCall:
    """Arguments of one call, with what `OpUnderTest.check_outputs` needs beside them."""

    values: dict[str, Any]
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    compare: Mapping[str, Compare] = field(default_factory=dict)
    same: Sequence[tuple[str, ...]] = ()
    """Groups of parameters that share one dtype."""


STRUCTURE = frozenset({
    "expanded_idx_mapping", "expanded_local_pos", "idx_mapping", "num_accepted", "num_sampled", "num_reqs",
    "batch_size", "num_tokens", "max_num_tokens", "total_input_tokens", "max_spec_len", "vocab_size",
})  # fmt: skip
"""Parameters that describe the layout of a batch: one value alone cannot change without the others."""


def structure(op: str) -> frozenset[str]:
    """Return the parameters of an op whose values depend on each other, cumulative sums among them."""
    from verispec.reference import contracts

    return STRUCTURE | {t.name for t in contracts.load(op).tensors if t.cumulative or t.within}


Maker = Callable[[Rng, BatchShape], MadeCall]
MAKERS: dict[str, Maker] = {}


def maker(function: Maker) -> Maker:
    MAKERS[function.__name__] = function
    return function


def make(op: str, seed: int, shape: BatchShape) -> MadeCall:
    """Return a call of `op`, the same for a seed and a shape."""
    return MAKERS[op](np.random.default_rng([seed, len(shape.counts), shape.vocab]), shape)


def _flat(rng: Rng, shape: BatchShape) -> Any:
    batch = random_batch(rng, shape.counts, shape.vocab, draft=shape.draft, greedy=0.3)
    if shape.exact:
        n = batch.tokens
        batch.target_probs = rng.choice([0.0, 0.125, 0.25, 0.375, 0.5], size=(n, shape.vocab))
        batch.inv_q = rng.choice([0.25, 0.5, 1.0, 2.0], size=batch.inv_q.shape)
        batch.uniform = rng.integers(0, 16, size=n) / 16 + 2.0**-6
        if batch.draft_probs is not None:
            batch.draft_probs = rng.choice([0.0, 0.125, 0.25, 0.5, 1.0], size=(n, shape.vocab))
    return batch


def _rates(shape: BatchShape) -> Any:
    return np.linspace(0.875, 0.25, max([1, *shape.counts])) if shape.synthetic else None


@maker
def rejection_greedy_sample(rng: Rng, shape: BatchShape) -> MadeCall:
    return MadeCall(_rejection.greedy_arguments(_flat(rng, shape), _rates(shape)))


@maker
def rejection_random_sample(rng: Rng, shape: BatchShape) -> MadeCall:
    values = _rejection.random_arguments(_flat(rng, shape), _rates(shape))
    return MadeCall(values, same=(("target_probs_ptr", "draft_probs_ptr"),))


@maker
def sample_recovered_tokens(rng: Rng, shape: BatchShape) -> MadeCall:
    values = _rejection.recovered_arguments(_flat(rng, shape))
    return MadeCall(values, same=(("target_probs_ptr", "draft_probs_ptr"),))


@maker
def expand_batch_to_tokens(rng: Rng, shape: BatchShape) -> MadeCall:
    values = {
        "input_ptr": rng.choice([0, 1, 2, 5], size=shape.requests),
        "cu_num_tokens_ptr": np.cumsum(np.asarray(shape.counts, dtype=np.int64)),
        "replace_from": 0,
        "replace_to": 1,
        "MAX_NUM_TOKENS": 1 << (max([128, *shape.counts]) - 1).bit_length(),
    }
    shapes = {"output_ptr": (sum(shape.counts) + 1,)}
    return MadeCall(values, shapes, same=(("input_ptr", "output_ptr"),))


@maker
def eagle_prepare_inputs_padded(rng: Rng, shape: BatchShape) -> MadeCall:
    counts = np.asarray(shape.counts, dtype=np.int64)
    prefill = np.where(counts == 0, rng.integers(0, 9, size=len(counts)), 0)
    return MadeCall(
        {
            "cu_num_draft_tokens_ptr": np.cumsum(counts),
            "valid_sampled_tokens_count_ptr": rng.integers(1, counts + 2),
            "query_start_loc_gpu_ptr": np.concatenate([[0], np.cumsum(counts + 1 + prefill)]),
            "num_reqs": len(counts),
        }
    )


@maker
def eagle_prepare_next_token_padded(rng: Rng, shape: BatchShape) -> MadeCall:
    columns = max([1, *shape.counts]) + 1
    rows = rng.integers(0, shape.vocab + 2, size=(shape.requests, columns))
    valid = np.asarray(shape.counts, dtype=np.int64)
    rows[np.arange(columns)[None, :] >= valid[:, None]] = -1
    rows[rng.random(rows.shape) < 0.05] = -1
    return MadeCall(
        {
            "sampled_token_ids_ptr": rows,
            "discard_request_mask_ptr": rng.random(shape.requests) < 0.2,
            "backup_next_token_ids_ptr": np.arange(shape.requests) + 50,
            "vocab_size": shape.vocab,
            "num_sampled_tokens_per_req": columns,
            "num_reqs": shape.requests,
            "BLOCK_SIZE_TOKENS": 1 << max(columns - 1, 0).bit_length(),
        }
    )


@maker
def eagle_step_slot_mapping_metadata(rng: Rng, shape: BatchShape) -> MadeCall:
    b, columns, block = shape.requests, 4, 16
    limit = columns * block
    positions = rng.choice([0, 5, block - 1, block, limit - 2, limit - 1], size=b)
    return MadeCall(
        {
            "positions_ptr": positions,
            "block_table_ptr": (rng.permutation(b * columns) + 1).reshape(b, columns),
            "seq_lens_ptr": np.minimum(positions + 1, limit),
            "out_slot_mapping_ptr": np.full(b + 3, -5),
            "block_size": block,
            "max_model_len": limit,
            "n_blocks_per_req": columns,
            "PAD_ID": -1,
            "batch_size": b,
        }
    )


@maker
def copy_and_expand_eagle_inputs(rng: Rng, shape: BatchShape) -> MadeCall:
    lengths = np.asarray(shape.counts, dtype=np.int64) + 1
    starts = np.concatenate([[0], np.cumsum(lengths)])
    first = rng.integers(0, 500, size=len(lengths))
    total = int(lengths.sum())
    return MadeCall(
        {
            "target_token_ids_ptr": rng.integers(0, 900, size=total),
            "target_positions_ptr": np.arange(total) - np.repeat(starts[:-1] - first, lengths),
            "next_token_ids_ptr": rng.integers(1000, 2000, size=len(lengths)),
            "query_start_loc_ptr": starts,
            "query_end_loc_ptr": starts[1:] - 1 - rng.integers(0, lengths),
            "padding_token_id": 7001,
            "parallel_drafting_token_id": 7002,
            "total_input_tokens": total,
            "num_padding_slots_per_request": 2 if shape.draft else 1,
            "shift_input_ids": not shape.synthetic,
            "BLOCK_SIZE_TOKENS": 64,
        }
    )


@maker
def compute_slot_mapping(rng: Rng, shape: BatchShape) -> MadeCall:
    lengths = np.asarray(shape.counts, dtype=np.int64)
    ranks = 2 if shape.synthetic else 1
    block, total = 16, int(lengths.sum())
    columns = max([1, *lengths.tolist()]) // block + 2
    starts = rng.integers(0, block * ranks, size=len(lengths))
    ends = np.cumsum(lengths)
    return MadeCall(
        {
            "num_tokens": total,
            "max_num_tokens": total + 5,
            "query_start_loc_ptr": np.concatenate([[0], ends]),
            "positions_ptr": np.arange(total) - np.repeat(ends - lengths - starts, lengths),
            "block_table_ptr": (rng.permutation(len(lengths) * columns) + 1).reshape(len(lengths), columns),
            "KV_CACHE_BLOCK_SIZE": block,
            "TOTAL_CP_WORLD_SIZE": ranks,
            "TOTAL_CP_RANK": ranks - 1,
            "CP_KV_CACHE_INTERLEAVE_SIZE": 4 if shape.synthetic else 1,
            "PAD_ID": -1,
        }
    )


def _requests(rng: Rng, shape: BatchShape) -> RequestBatch:
    padding = [1] if shape.requests > 3 else []
    batch = random_requests(rng, shape.counts, shape.vocab, draft=shape.draft, padding=padding)
    if shape.exact:
        _impossible_drafts(rng, batch)
    return batch


def _impossible_drafts(rng: Rng, batch: RequestBatch) -> None:
    """Give some drafts the probability 0: of the target alone, or of the draft too, where 0 is compared with 0."""
    for row in np.nonzero(rng.random(len(batch.draft_sampled) - 1) < 0.2)[0]:
        state, token = batch.expanded_idx_mapping[row], batch.draft_sampled[row + 1]
        if state < 0 or batch.expanded_local_pos[row + 1] == 0:
            continue
        batch.target_logits[row, token] = -np.inf
        if batch.draft_logits is not None and rng.random() < 0.5:
            batch.draft_logits[state, batch.expanded_local_pos[row], token] = -np.inf


def _verification(op: str, rng: Rng, shape: BatchShape) -> MadeCall:
    from verispec.reference import contracts

    requests = _requests(rng, shape)
    values = requests.arguments(contracts.load(op))
    logits = ("target_logits", "draft_logits")
    return MadeCall(
        values, {"sampled": (requests.requests, requests.columns)}, _request_state.NORMALISERS, same=(logits,)
    )


@maker
def probabilistic_rejection(rng: Rng, shape: BatchShape) -> MadeCall:
    return _verification("probabilistic_rejection", rng, shape)


@maker
def block_verification(rng: Rng, shape: BatchShape) -> MadeCall:
    return _verification("block_verification", rng, shape)


@maker
def residual_resample(rng: Rng, shape: BatchShape) -> MadeCall:
    """Return arguments after a verification by the oracle, so that rejections, bonus rows and padding all occur."""
    requests = _requests(rng, shape)
    rows, columns = requests.requests, requests.columns
    before = {
        "sampled": np.full((rows, columns), 11),
        "num_accepted": np.zeros(rows, np.int64),
        "target_logsumexp": np.zeros(rows, np.float32),
        "draft_logsumexp": np.zeros(rows, np.float32),
    }
    from verispec.reference import contracts

    verified = oracle.load("probabilistic_rejection")(
        **requests.arguments(contracts.load("probabilistic_rejection"), **before)
    )
    ratio = -rng.integers(0, 4, rows) / 8 if shape.synthetic else None
    return MadeCall(
        requests.arguments(contracts.load("residual_resample"), **verified, log_prefix_ratio=ratio),
        same=(("target_logits", "draft_logits"),),
    )


@maker
def gather_draft_logits_and_target_argmax(rng: Rng, shape: BatchShape) -> MadeCall:
    from verispec.reference import contracts

    requests = _requests(rng, shape)
    rows, block = len(requests.target_logits), 16 if shape.vocab < 4096 else 1024
    if shape.exact:
        requests.target_logits = np.round(requests.target_logits / 3)
    blocks = -(-shape.vocab // block) + 1
    shapes = {"local_max": (rows, blocks), "local_argmax": (rows, blocks)}
    more: dict[str, Any] = {"BLOCK_SIZE": block}
    if requests.draft_logits is None:
        more["gathered_draft_logits"] = None
    else:
        shapes["gathered_draft_logits"] = (rows, requests.draft_logits.shape[2] + 3)
    values = requests.arguments(contracts.load("gather_draft_logits_and_target_argmax"), **more)
    return MadeCall(values, shapes, same=(("target_logits", "draft_logits", "gathered_draft_logits"),))


@maker
def synthetic_rejection(rng: Rng, shape: BatchShape) -> MadeCall:
    from verispec.reference import contracts

    requests = _requests(rng, replace(shape, vocab=11))
    rates = np.linspace(0.9, 0.3, max([1, *shape.counts]))
    values = requests.arguments(
        contracts.load("synthetic_rejection"),
        target_sampled=np.arange(len(requests.draft_sampled)) + 100,
        acceptance_rates=rates,
    )
    return MadeCall(values, {"sampled": (requests.requests, requests.columns)})


@maker
def flatten_sampled(rng: Rng, shape: BatchShape) -> MadeCall:
    rows = np.asarray(shape.counts, dtype=np.int64) + 1
    values = {
        "sampled": rng.integers(0, 1000, (len(rows), int(max([1, *rows])))),
        "num_sampled": rng.integers(0, rows + 1),
        "cu_num_logits": np.concatenate(([0], np.cumsum(rows))),
    }
    return MadeCall(values, {"flat_sampled": (int(rows.sum()) + 3,)})


def _fused_verification(op: str, rng: Rng, shape: BatchShape) -> MadeCall:
    from verispec.reference import contracts

    draft, temperature = op == "verify_draft_logits", 0.0 if op == "verify_greedy" else None
    padding = [1] if shape.requests > 3 else []
    requests = _fused.raw(
        random_requests(rng, shape.counts, shape.vocab, draft=draft, temperature=temperature, padding=padding)
    )
    limited = shape.synthetic and op != "verify_greedy"
    k, p = [([0, max(shape.vocab // 2, 1)], [0.9, 1.0, 0.5]), ([1, 0, 2], None), (None, [0.6, 1.0])][rng.integers(3)]
    given = _fused.limits(requests, k, p) if limited else {}
    compare = {} if op == "verify_greedy" else _fused.by_rule(op)
    same = (("target_logits", "draft_logits"),) if draft else ()
    values = requests.arguments(contracts.load(op), **given)
    return MadeCall(values, {"sampled": (requests.requests, requests.columns)}, compare, same)


@maker
def verify_greedy(rng: Rng, shape: BatchShape) -> MadeCall:
    return _fused_verification("verify_greedy", rng, shape)


@maker
def verify_one_hot(rng: Rng, shape: BatchShape) -> MadeCall:
    return _fused_verification("verify_one_hot", rng, shape)


@maker
def verify_draft_logits(rng: Rng, shape: BatchShape) -> MadeCall:
    return _fused_verification("verify_draft_logits", rng, shape)


@maker
def gumbel_sample(rng: Rng, shape: BatchShape) -> MadeCall:
    from verispec.suites.sampler.test_gumbel_sample import within

    rows, states = shape.requests, shape.requests + 3
    cache = normal(rng, states, 3, shape.vocab + 5) if shape.draft else None
    values = {
        "logits": normal(rng, rows, shape.vocab),
        "expanded_idx_mapping": rng.permutation(states)[:rows],
        "temperature": rng.choice([0.0, 0.5, 1.0, 1.7], states).astype(np.float32),
        "seed": rng.integers(-(2**63), 2**63 - 1, states),
        "pos": rng.integers(0, 2**40, rows),
        "apply_temperature": not shape.synthetic,
        "is_drafting": shape.draft,
        "logits_cache": cache,
        "logits_cache_col": rng.integers(0, 3, rows) if shape.draft else None,
    }
    return MadeCall(values, compare={"sampled": within}, same=(("logits", "logits_cache"),))


@maker
def apply_top_k_top_p(rng: Rng, shape: BatchShape) -> MadeCall:
    from verispec.suites.sampler.test_apply_top_k_top_p import within

    rows = shape.requests
    k = rng.integers(1, max(shape.vocab if shape.exact else shape.vocab // 4, 2), rows)
    p = rng.uniform(0.1, 0.97, rows).astype(np.float32)
    logits = normal(rng, rows, shape.vocab)
    values = {
        # Whole numbers: a limit falls among ties, more of them than any tile holds where the vocabulary is large.
        "logits": np.round(logits / 3) if shape.exact else logits,
        "k": None if shape.synthetic else k,
        "p": p if shape.draft else None,
    }
    return MadeCall(values, compare={"output": within}, same=(("logits", "output"),))


@maker
def philox(rng: Rng, shape: BatchShape) -> MadeCall:
    rows = max(sum(shape.counts), 1)
    return MadeCall({"counter": rng.integers(0, 2**32, (rows, 4)), "key": rng.integers(0, 2**32, (rows, 2))})

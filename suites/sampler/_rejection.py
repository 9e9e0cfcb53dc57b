"""Arguments of the three packed rejection ops from one batch, by the names of their contracts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verispec.cases.batches import Batch
from verispec.judge import OpUnderTest, assert_same
from verispec.reference.contracts import Contract

REACH = "every verification step goes through this kernel with tensors of these dtypes"


def drafted_reach(params: Mapping[str, Any]) -> str | None:
    """Return `REACH` for calls with a draft token.

    Engines differ for a step without any: vLLM 0.32.0 verifies it, vllm-ascend 0.23.0 samples it without verification.
    Requests one by one are such calls too.
    """
    return None if params.get("counts") == "none" or params.get("relation") == "split" else REACH


def random_arguments(batch: Batch, rates: Any = None, **changes: Any) -> dict[str, Any]:
    """Return arguments of rejection_random_sample."""
    return {
        "cu_num_draft_tokens_ptr": batch.cu,
        "draft_token_ids_ptr": batch.draft_token_ids,
        "draft_probs_ptr": batch.draft_probs,
        "target_probs_ptr": batch.target_probs,
        "bonus_token_ids_ptr": batch.bonus[:, None],
        "recovered_token_ids_ptr": batch.recovered,
        "uniform_probs_ptr": batch.uniform,
        "is_greedy_ptr": batch.is_greedy,
        "max_spec_len": batch.most,
        "vocab_size": batch.vocab,
        "synthetic_conditional_rates_ptr": rates,
        "NO_DRAFT_PROBS": batch.draft_probs is None,
        "SYNTHETIC_MODE": rates is not None,
        **changes,
    }


def greedy_arguments(batch: Batch, rates: Any = None, **changes: Any) -> dict[str, Any]:
    """Return arguments of rejection_greedy_sample."""
    return {
        "cu_num_draft_tokens_ptr": batch.cu,
        "draft_token_ids_ptr": batch.draft_token_ids,
        "target_argmax_ptr": batch.argmax,
        "bonus_token_ids_ptr": batch.bonus[:, None],
        "is_greedy_ptr": batch.is_greedy,
        "max_spec_len": batch.most,
        "uniform_probs_ptr": batch.uniform,
        "synthetic_conditional_rates_ptr": rates,
        "SYNTHETIC_MODE": rates is not None,
        **changes,
    }


def recovered_arguments(batch: Batch, **changes: Any) -> dict[str, Any]:
    """Return arguments of sample_recovered_tokens."""
    return {
        "cu_num_draft_tokens_ptr": batch.cu,
        "draft_token_ids_ptr": batch.draft_token_ids,
        "draft_probs_ptr": batch.draft_probs,
        "target_probs_ptr": batch.target_probs,
        "inv_q_ptr": batch.inv_q,
        "vocab_size": batch.vocab,
        "NO_DRAFT_PROBS": batch.draft_probs is None,
        "USE_FP64_GUMBEL": False,
        **changes,
    }


def integers(contract: Contract, width: str) -> dict[str, str]:
    """Return dtypes of all integer tensors: "int32", "int64", or "mixed" and "swapped", which alternate."""
    names = [t.name for t in contract.tensors if set(t.dtypes) == {"int32", "int64"}]
    pairs = {"mixed": ("int32", "int64"), "swapped": ("int64", "int32")}.get(width, (width, width))
    return {name: pairs[i % 2] for i, name in enumerate(names)}


def permuted(arguments: Mapping[str, Any], counts: Any, order: Any) -> dict[str, Any]:
    """Return the same requests in another order; rows of requests and rows of their tokens move together."""
    ends = np.cumsum(counts)
    token_order = np.concatenate([np.arange(ends[b] - counts[b], ends[b]) for b in order]) if len(order) else order
    token_order = token_order.astype(np.int64)
    moved = dict(arguments)
    for name, value in arguments.items():
        if name in PER_REQUEST and value is not None:
            moved[name] = np.asarray(value)[order]
        elif name in PER_TOKEN and value is not None:
            moved[name] = np.asarray(value)[token_order]
    moved["cu_num_draft_tokens_ptr"] = np.cumsum(np.asarray(counts)[order])
    return moved


PER_REQUEST = ("output_token_ids_ptr", "bonus_token_ids_ptr", "is_greedy_ptr", "inv_q_ptr")
PER_TOKEN = (
    "draft_token_ids_ptr",
    "draft_probs_ptr",
    "target_probs_ptr",
    "recovered_token_ids_ptr",
    "uniform_probs_ptr",
    "target_argmax_ptr",
)


def relation_of_permuting(op: OpUnderTest, arguments: dict[str, Any], counts: Any, rng: np.random.Generator) -> None:
    """Check that a permuted batch gives permuted rows."""
    order = rng.permutation(len(counts))
    rows = op.call_written(arguments)["output_token_ids_ptr"]
    moved = op.call(permuted(arguments, counts, order))[1]["output_token_ids_ptr"]
    assert_same("a permuted batch gives permuted rows", rows[order], moved)


def relation_of_splitting(op: OpUnderTest, arguments: dict[str, Any], counts: Any) -> None:
    """Check that each request alone gives the row that it has in the batch."""
    rows = op.call_written(arguments)["output_token_ids_ptr"]
    for b in range(len(counts)):
        alone = op.call(permuted(arguments, counts, np.array([b])))[1]["output_token_ids_ptr"]
        assert_same(f"request {b} alone gives its row of the batch", rows[b : b + 1], alone)

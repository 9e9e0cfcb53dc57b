"""Arguments of the ops that sample, and of those that move tokens, by the names of their contracts."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.cases.request_state import Array, RequestBatch, normal
from verispec.reference.contracts import Contract

Seed = int | np.random.Generator
Shapes = dict[str, tuple[int, ...]]
"""Shapes of outputs that the inputs do not determine."""


def expand_arguments(
    values: Any, counts: Any, replace: tuple[Any, Any] = (0, 0), spare: int = 0, bound: int = 0
) -> tuple[Any, Shapes]:
    """Return the expansion of `values` over `counts`, and the shape of an output with `spare` more elements.

    Without a `bound` on the counts it is a power of two, as callers of vLLM's kernel pass.
    """
    counts = np.asarray(counts, dtype=np.int64)
    arguments = {
        "input_ptr": np.asarray(values),
        "cu_num_tokens_ptr": np.cumsum(counts),
        "replace_from": replace[0],
        "replace_to": replace[1],
        "MAX_NUM_TOKENS": bound or 1 << (max([128, *counts.tolist()]) - 1).bit_length(),
    }
    return arguments, {"output_ptr": (int(counts.sum()) + spare,)}


def flatten_arguments(rng: np.random.Generator, rows: Any, num_sampled: Any, columns: int = 0) -> tuple[Any, Shapes]:
    """Return requests with `rows` logits rows and `num_sampled` tokens each, [B], and the shape of the output."""
    rows = np.asarray(rows, dtype=np.int64)
    arguments = {
        "sampled": rng.integers(0, 1000, (len(rows), columns or int(max([1, *rows])))),
        "num_sampled": num_sampled,
        "cu_num_logits": np.concatenate(([0], np.cumsum(rows))),
    }
    return arguments, {"flat_sampled": (int(rows.sum()) + 3,)}


def gather_arguments(requests: RequestBatch, contract: Contract, block: int = 16, spare: int = 1) -> tuple[Any, Shapes]:
    """Return arguments of a batch in blocks of `block` tokens, and outputs with `spare` more columns than blocks."""
    (rows, shared), draft = requests.target_logits.shape, requests.draft_logits
    more: dict[str, Any] = {"BLOCK_SIZE": block}
    shapes: Shapes = {}
    if draft is None:
        more["gathered_draft_logits"] = None
    else:
        shared = min(shared, draft.shape[2])
        shapes["gathered_draft_logits"] = (rows, draft.shape[2] + 3)
    blocks = max(-(-shared // block) + spare, 1)
    shapes |= {"local_max": (rows, blocks), "local_argmax": (rows, blocks)}
    return requests.arguments(contract, **more), shapes


def synthetic_arguments(requests: RequestBatch, contract: Contract, rates: Any, columns: int = 0) -> tuple[Any, Shapes]:
    """Return arguments of a batch whose steps are accepted at `rates`, and the shape of the sampled tokens."""
    tokens = np.arange(len(requests.draft_sampled)) + 100
    arguments = requests.arguments(contract, target_sampled=tokens, acceptance_rates=rates)
    return arguments, {"sampled": (requests.requests, columns or requests.columns)}


def limit_arguments(
    seed: Seed, rule: str = "both", vocab: int = 300, rows: int = 4, spread: float = 3.0
) -> dict[str, Any]:
    """Return logits with a standard deviation of `spread`, and top-k, top-p or both: "k", "p", "both".

    Every second k is at most 64, as users ask for; the others are up to a quarter of the vocabulary.
    """
    rng = np.random.default_rng(seed)
    logits = normal(rng, rows, vocab) * np.float32(spread / 3)
    k = rng.integers(1, max(vocab // 4, 2), rows)
    k[1::2] = np.minimum(k[1::2], rng.integers(1, 65, rows // 2))
    p = rng.uniform(0.1, 0.97, rows).astype(np.float32)
    return {"logits": logits, "k": k if rule != "p" else None, "p": p if rule != "k" else None}


def counter_arguments(seed: Seed, counters: int) -> dict[str, Array]:
    """Return random counters and keys of 32-bit words."""
    rng = np.random.default_rng(seed)
    return {"counter": rng.integers(0, 2**32, (counters, 4)), "key": rng.integers(0, 2**32, (counters, 2))}


def gumbel_arguments(
    seed: Seed, draw: str = "target", vocab: int = 37, rows: int = 6, **changes: Any
) -> dict[str, Any]:
    """Return rows over more states than rows, in random order; some temperatures are 0."""
    rng = np.random.default_rng(seed)
    states = rows + 3
    return {
        "logits": normal(rng, rows, vocab),
        "expanded_idx_mapping": rng.permutation(states)[:rows],
        "temperature": rng.choice([0.0, 0.5, 1.0, 1.7], states).astype(np.float32),
        "seed": rng.integers(-(2**63), 2**63 - 1, states),
        "pos": rng.integers(0, 2**40, rows),
        "apply_temperature": True,
        "is_drafting": draw == "draft",
        "logits_cache": None,
        "logits_cache_col": None,
        **changes,
    }


def with_cache(values: dict[str, Any], seed: Seed) -> dict[str, Any]:
    """Add a cache of three steps that is wider than the vocabulary."""
    rng = np.random.default_rng(seed)
    rows, vocab = values["logits"].shape
    cache = normal(rng, len(values["temperature"]), 3, vocab + 5)
    return values | {"logits_cache": cache, "logits_cache_col": rng.integers(0, 3, rows)}

"""Cases of slot-indexed batches: verification from logits, and resampling."""

from __future__ import annotations

from typing import Any

import numpy as np
from case_parts import POISON, Array, Size, draft_counts, maker, random_logits, softmax

from verispec.reference import oracle


def batch_arguments(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    """Arguments of a verification: a batch with padding, unequal drafts, greedy requests and placeholders."""
    counts = draft_counts(rng, size)
    requests, vocabulary = size.requests, size.vocabulary
    width = size.draft_vocabulary or vocabulary
    states = requests + 3
    idx_mapping = rng.permutation(states)[:requests].astype(np.int32)
    if requests > 2:
        idx_mapping[1] = -1
    rows = [0 if state < 0 else count + 1 for state, count in zip(idx_mapping, counts, strict=True)]
    cu_num_logits = np.concatenate(([0], np.cumsum(rows))).astype(np.int32)
    used, padding = int(cu_num_logits[-1]), 2
    expanded_idx_mapping = np.concatenate((np.repeat(idx_mapping, rows), np.full(padding, -1))).astype(np.int32)
    expanded_local_pos = np.concatenate([np.arange(n) for n in rows] + [np.zeros(padding)]).astype(np.int32)
    temperature = rng.choice([0.0, 0.7, 1.0, 1.3], states).astype(np.float32)
    temperature[idx_mapping[-1]] = 0.0 if variant == "greedy" else 0.7
    if variant != "greedy":
        temperature[idx_mapping[0]] = 1.0
    draft_logits = random_logits(rng, states, max(size.drafts, 1), width)
    target_logits = random_logits(rng, used + padding, vocabulary)
    shared = min(width, vocabulary)
    draft_sampled = rng.integers(0, shared, used + padding).astype(np.int32)
    for row in range(used):
        state, step = expanded_idx_mapping[row], expanded_local_pos[row]
        if row + 1 < used and expanded_local_pos[row + 1] > 0:
            scale = temperature[state]
            if scale == 0.0:
                if rng.random() < 0.8:
                    draft_sampled[row + 1] = np.nanargmax(target_logits[row, :shared])
                continue
            # Near the target, so that some drafts are accepted.
            near = target_logits[row, :shared] * scale + rng.standard_normal(shared, dtype=np.float32) * 0.3
            draft_logits[state, step, :shared] = near
            draft_sampled[row + 1] = rng.choice(
                shared, p=softmax(near / scale).astype(np.float64) / softmax(near / scale).astype(np.float64).sum()
            )
    if variant == "placeholder":
        draft_sampled[1:used:3] = -1
        draft_sampled[used - 1] = vocabulary + 5
    if variant == "nan":
        target_logits[::2, 1::2] = np.nan
        target_logits[1] = np.nan
        draft_logits[:, -1] = np.nan
    if variant == "masked":
        target_logits[:, shared // 3 :] = -np.inf
    return {
        "target_logits": target_logits,
        "draft_logits": None if variant in {"one_hot", "greedy"} else draft_logits,
        "draft_sampled": draft_sampled,
        "cu_num_logits": cu_num_logits,
        "pos": (rng.integers(0, 2**40, used + padding) + np.arange(used + padding)).astype(np.int64),
        "idx_mapping": idx_mapping,
        "expanded_idx_mapping": expanded_idx_mapping,
        "expanded_local_pos": expanded_local_pos,
        "temperature": temperature,
        "seed": rng.integers(-(2**63), 2**63 - 1, states),
    }


def _verification_outputs(size: Size) -> dict[str, Any]:
    return {
        "sampled": np.full((size.requests, size.drafts + 2), POISON, np.int64),
        "num_accepted": np.full(size.requests, POISON, np.int32),
        "target_logsumexp": np.full(size.requests, POISON, np.float32),
        "draft_logsumexp": np.full(size.requests, POISON, np.float32),
    }


_VERIFY = ("draft", "one_hot", "greedy", "placeholder", "nan", "masked", "narrow_draft")


@maker(*_VERIFY)
def probabilistic_rejection(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    return _verification_outputs(size) | batch_arguments(rng, size, variant)


@maker(*_VERIFY)
def block_verification(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    ratio = {"log_prefix_ratio": np.full(size.requests, POISON, np.float32)}
    return _verification_outputs(size) | ratio | batch_arguments(rng, size, variant)


@maker(*_VERIFY, "block", "no_mass")
def residual_resample(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    inputs = batch_arguments(rng, size, variant)
    if variant == "no_mass":
        # The draft is the target, and its normaliser makes q the larger everywhere.
        for row in range(len(inputs["target_logits"])):
            state, step = inputs["expanded_idx_mapping"][row], inputs["expanded_local_pos"][row]
            if state >= 0 and step < inputs["draft_logits"].shape[1]:
                inputs["draft_logits"][state, step] = inputs["target_logits"][row] * inputs["temperature"][state]
    verified = oracle.load("probabilistic_rejection")(**_verification_outputs(size), **inputs)
    # Some requests rejected where verification accepted, so that every kind of row is drawn from.
    counts = np.diff(inputs["cu_num_logits"]) - 1
    accepted = np.where(rng.random(size.requests) < 0.5, verified["num_accepted"], counts // 2)
    for b, first in enumerate(inputs["cu_num_logits"][:-1]):
        state, step = inputs["idx_mapping"][b], int(accepted[b])
        if state >= 0 and inputs["draft_logits"] is not None and 0 <= step < counts[b] and inputs["temperature"][state]:
            shared = min(inputs["target_logits"].shape[1], inputs["draft_logits"].shape[2])
            target = inputs["target_logits"][first + step, :shared].astype(np.float64)
            draft = inputs["draft_logits"][state, step, :shared].astype(np.float64) / inputs["temperature"][state]
            verified["target_logsumexp"][b] = _logsumexp(target)
            verified["draft_logsumexp"][b] = _logsumexp(draft) - (variant == "no_mass")
    return {
        "sampled": verified["sampled"],
        "num_sampled": np.full(size.requests, POISON, np.int32),
        "num_accepted": np.where(inputs["idx_mapping"] < 0, 0, accepted).astype(np.int32),
        "target_logsumexp": verified["target_logsumexp"],
        "draft_logsumexp": verified["draft_logsumexp"],
        "log_prefix_ratio": -rng.random(size.requests).astype(np.float32) if variant == "block" else None,
    } | {n: inputs[n] for n in inputs if n not in {"expanded_idx_mapping", "expanded_local_pos"}}


def _logsumexp(row: Array) -> float:
    row = np.where(np.isnan(row), -np.inf, row)
    top = row.max()
    return float(top if top == -np.inf else top + np.log(np.exp(row - top).sum()))


@maker("draft", "one_hot", "greedy", "nan", "narrow_draft", "ties")
def gather_draft_logits_and_target_argmax(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    inputs = batch_arguments(rng, size, "greedy" if variant == "ties" else variant)
    # A large block is more than the lanes of a program hold at once.
    rows, block = len(inputs["target_logits"]), 300 if size.vocabulary < 5000 else 5000
    if variant == "ties":
        logits = inputs["target_logits"]
        logits[1::2] = np.minimum(np.round(logits[1::2]), np.float32(2.0))
        logits[1::2, ::3] = np.nan
        logits[0] = np.nan
        # Not of the block before, whose length is no power of two.
        logits[2::2, block] = 50.0
        inputs["temperature"][:] = 0.0
    draft_logits = inputs["draft_logits"]
    names = ("target_logits", "draft_logits", "expanded_idx_mapping", "expanded_local_pos", "temperature")
    return {
        "local_max": np.full((rows, -(-size.vocabulary // block) + 1), POISON, np.float32),
        "local_argmax": np.full((rows, -(-size.vocabulary // block) + 1), POISON, np.int64),
        "gathered_draft_logits": None
        if draft_logits is None
        else np.full((rows, draft_logits.shape[2] + 3), POISON, np.float32),
        **{name: inputs[name] for name in names},
        "BLOCK_SIZE": block,
    }


@maker("draft", "placeholder")
def synthetic_rejection(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    inputs = batch_arguments(rng, Size(size.vocabulary, size.requests, size.drafts), variant)
    rates = np.concatenate(([1.0], rng.random(max(size.drafts - 1, 0)) * 0.5 + 0.4)).astype(np.float32)
    names = ("draft_sampled", "cu_num_logits", "pos", "idx_mapping", "seed")
    return {
        "sampled": np.full((size.requests, size.drafts + 2), POISON, np.int64),
        "num_sampled": np.full(size.requests, POISON, np.int32),
        "target_sampled": rng.integers(0, size.vocabulary, len(inputs["pos"])),
        **{name: inputs[name] for name in names},
        "acceptance_rates": rates,
    }


@maker("ragged")
def flatten_sampled(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    rows = draft_counts(rng, size) + 1
    return {
        "flat_sampled": np.full(rows.sum() + 2, POISON, np.int64),
        "sampled": rng.integers(0, size.vocabulary, (size.requests, size.drafts + 1)),
        "num_sampled": rng.integers(0, rows + 1).astype(np.int32),
        "cu_num_logits": np.concatenate(([0], np.cumsum(rows))).astype(np.int32),
    }

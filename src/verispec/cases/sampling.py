"""Batches for end-to-end samplers, and their exact result in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from verispec.cases.distribution import limited

if TYPE_CHECKING:
    from verispec.engines.protocol.sampling import SamplerBatch

Array = np.ndarray[Any, Any]


def random_sampler_batch(
    rng: np.random.Generator,
    counts: Any,
    vocab: int = 50,
    *,
    temperature: Any = 1.0,
    draft: bool = True,
    spread: float = 3.0,
    **options: Any,
) -> SamplerBatch:
    """Return a batch with normal logits; about half of the draft tokens equal the target's argmax.

    With draft probabilities, each row gives its draft token a weight of five.

    Args:
        rng: source of all values.
        counts: draft tokens of each request.
        vocab: vocabulary size V.
        temperature: one number for all requests, or one per request.
        draft: False omits the draft probabilities.
        spread: standard deviation of the logits.
        **options: further fields of `SamplerBatch`; top_k and top_p may be one number or one per request.
    """
    import torch

    from verispec.engines.protocol.sampling import SamplerBatch

    b, n = len(counts), int(np.sum(counts))
    logits = rng.normal(scale=spread, size=(n + b, vocab)).astype(np.float32)
    rows = target_rows(counts)
    likely = logits[rows].argmax(axis=1) if n else np.zeros(0, dtype=np.int64)
    flat = np.where(rng.random(n) < 0.5, likely, rng.integers(0, vocab, size=n))
    probs = None
    if draft:
        weights = np.exp(rng.normal(size=(n, vocab)))
        weights[np.arange(n), flat] *= 5
        probs = torch.from_numpy((weights / weights.sum(axis=1, keepdims=True)).astype(np.float32))
    ends = np.cumsum(counts)
    ids = [flat[e - c : e].tolist() for c, e in zip(counts, ends, strict=True)]
    for name, dtype in (("top_k", torch.int32), ("top_p", torch.float32)):
        if options.get(name) is not None:
            options[name] = torch.as_tensor(np.broadcast_to(options[name], b).copy()).to(dtype)
    heat = torch.as_tensor(np.broadcast_to(np.asarray(temperature, dtype=np.float32), b).copy())
    return SamplerBatch(torch.from_numpy(logits), ids, heat, probs, **options)


def target_rows(counts: Any) -> Array:
    """Return the rows of the logits that verify a draft token, request by request.

    Args:
        counts: [B] drafts of each request.

    Returns:
        [N] int64.
    """
    starts = np.concatenate([[0], np.cumsum(np.asarray(counts, dtype=np.int64) + 1)])
    return np.concatenate(
        [np.arange(s, s + c) for s, c in zip(starts, counts, strict=False)] + [np.zeros(0, dtype=np.int64)]
    )


def rows_of(batch: SamplerBatch, b: int) -> slice:
    """Return the rows of request `b` of `batch`: its draft rows, then its bonus row."""
    start = sum(map(len, batch.draft_token_ids[:b])) + b
    return slice(start, start + len(batch.draft_token_ids[b]) + 1)


def select(batch: SamplerBatch, order: Any) -> SamplerBatch:
    """Return a batch of the requests `order`, in that order."""
    import torch

    from verispec.engines.protocol.sampling import SamplerBatch

    ends = np.cumsum(batch.counts)
    rows = np.concatenate([np.r_[rows_of(batch, b)] for b in order])
    drafts = [np.arange(ends[b] - batch.counts[b], ends[b]) for b in order]
    flat = torch.from_numpy(np.concatenate([*drafts, np.zeros(0)]).astype(np.int64))
    index = torch.as_tensor(list(order))
    return SamplerBatch(
        batch.logits[torch.from_numpy(rows)],
        [batch.draft_token_ids[b] for b in order],
        batch.temperature[index],
        None if batch.draft_probs is None else batch.draft_probs[flat],
        None if batch.top_k is None else batch.top_k[index],
        None if batch.top_p is None else batch.top_p[index],
        None if batch.min_p is None else batch.min_p[index],
        None if batch.seeds is None else [batch.seeds[b] for b in order],
        batch.synthetic_rates,
    )


def greedy_tokens(batch: SamplerBatch, b: int) -> list[int]:
    """Return the tokens that request `b` of `batch` emits if it is greedy."""
    best = batch.logits[rows_of(batch, b)].double().argmax(dim=1).tolist()
    emitted: list[int] = []
    for draft, token in zip(batch.draft_token_ids[b], best, strict=False):
        emitted.append(token)
        if draft != token:
            return emitted
    return [*emitted, best[-1]]


def target_distribution(batch: SamplerBatch, b: int, row: int) -> Array:
    """Return the target's distribution at row `row` of request `b` of `batch`, [V] float64; see `limited`."""
    top_k = 0 if batch.top_k is None else int(batch.top_k[b])
    top_p = 1.0 if batch.top_p is None else float(batch.top_p[b])
    logits = batch.logits[rows_of(batch, b)][row].double().numpy()
    min_p = 0.0 if batch.min_p is None else float(batch.min_p[b])
    return limited(logits, max(float(batch.temperature[b]), 1e-300), top_k, top_p, min_p)

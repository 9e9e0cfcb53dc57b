"""The exact distribution of a sampled token, the one definition that all cases compare with."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def limited(logits: Array, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> Array:
    """Return the distribution of a token under temperature, min-p, top-k and top-p, in this order.

    Min-p keeps tokens with at least this share of the maximum probability. Top-k keeps ties with the k-th logit. Top-p
    keeps the smallest set of most likely tokens whose probability reaches p; equal probabilities resolve to lower ids.

    Args:
        logits: [..., V], minus infinity for a forbidden token.
        temperature: above 0.
        top_k: tokens to keep; values below 1 and from V on keep all.
        top_p: probability to keep; 1 keeps all.
        min_p: share of the maximum probability; 0 keeps all.

    Returns:
        Probabilities [..., V] in float64.
    """
    scaled = logits.astype(np.float64) / temperature
    scaled -= scaled.max(-1, keepdims=True)
    if min_p > 0:
        scaled[scaled < np.log(min_p)] = -np.inf
    if 0 < top_k < scaled.shape[-1]:
        scaled[scaled < np.partition(scaled, -top_k, axis=-1)[..., -top_k, None]] = -np.inf
    weights: Array = np.exp(scaled, out=scaled)
    weights /= weights.sum(-1, keepdims=True)
    if top_p < 1:
        order = np.argsort(-weights, axis=-1, kind="stable")
        ordered = np.take_along_axis(weights, order, -1)
        before = np.cumsum(ordered, -1) - ordered
        ordered[before >= top_p] = 0.0
        np.put_along_axis(weights, order, ordered, -1)
        weights /= weights.sum(-1, keepdims=True)
    return weights

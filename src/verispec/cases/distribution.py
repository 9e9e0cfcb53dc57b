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
        weights[~_nucleus(weights, top_p)] = 0.0
        weights /= weights.sum(-1, keepdims=True)
    return weights


def _nucleus(weights: Array, top_p: float) -> Array:
    """Return a mask of the smallest set of most likely tokens whose mass reaches `top_p`.

    Values are sorted instead of ids, in a fifth of the time; ids decide between equal values alone.
    """
    falling = np.sort(weights, axis=-1)[..., ::-1]
    kept = (np.cumsum(falling, -1) - falling < top_p).sum(-1, keepdims=True)
    least = np.take_along_axis(falling, kept - 1, -1)
    nucleus: Array = weights >= least
    if (nucleus.sum(-1, keepdims=True) > kept).any():
        tied = weights == least
        room = kept - (weights > least).sum(-1, keepdims=True)
        nucleus &= ~tied | (np.cumsum(tied, -1) <= room)
    return nucleus

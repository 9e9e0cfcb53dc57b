"""Oracle of gumbel_sample: the contract's clauses, executed."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.reference.oracle._request_state import clean
from verispec.reference.oracle.philox import Draw, gumbel

Array = np.ndarray[Any, Any]


def scores(
    t: int,
    *,
    logits: Array,
    expanded_idx_mapping: Array,
    temperature: Array,
    seed: Array,
    pos: Array,
    apply_temperature: bool,
    is_drafting: bool,
    logits_cache: Array | None = None,
    logits_cache_col: Array | None = None,
) -> Array:
    """Return the float64 score of every token of row `t`; the sampled token is the argmax."""
    state = int(expanded_idx_mapping[t])
    scale = float(temperature[state])
    with np.errstate(over="ignore"):  # a logit past the cache's dtype is infinite in it
        row = logits[t] if logits_cache is None else logits[t].astype(logits_cache.dtype)
    score = clean(row)
    if scale == 0.0:
        return score
    if apply_temperature:
        score = score / scale
    draw = Draw.DRAFT if is_drafting else Draw.TARGET
    step = int(logits_cache_col[t]) if is_drafting and logits_cache_col is not None else 0
    return score + gumbel(int(seed[state]), int(pos[t]), step, draw, len(score))


def gumbel_sample(
    *,
    sampled: Array,
    logits: Array,
    expanded_idx_mapping: Array,
    temperature: Array,
    seed: Array,
    pos: Array,
    apply_temperature: bool,
    is_drafting: bool,
    logits_cache: Array | None = None,
    logits_cache_col: Array | None = None,
) -> dict[str, Array]:
    if logits_cache is not None and logits_cache_col is None:
        raise ValueError("gumbel_sample: logits_cache_col: expected an array with logits_cache, got None")
    tokens = sampled.copy()
    cache = None if logits_cache is None else logits_cache.copy()
    for t, state in enumerate(expanded_idx_mapping):
        if state < 0:
            continue
        row_scores = scores(
            t,
            logits=logits,
            expanded_idx_mapping=expanded_idx_mapping,
            temperature=temperature,
            seed=seed,
            pos=pos,
            apply_temperature=apply_temperature,
            is_drafting=is_drafting,
            logits_cache=logits_cache,
            logits_cache_col=logits_cache_col,
        )
        tokens[t] = row_scores.argmax()
        if cache is not None and logits_cache_col is not None:
            with np.errstate(over="ignore"):
                cache[state, logits_cache_col[t], : logits.shape[1]] = logits[t]
    outputs = {"sampled": tokens}
    if cache is not None:
        outputs["logits_cache"] = cache
    return outputs

"""Guess of a threshold: an interval (low, high] of logits that contains it, from a histogram of part of its row.

A guess affects speed alone: the weights that are measured with it show if it is wrong.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ._logit_keys import load_ordered, weight
from ._logits import nan_as_lowest

SAMPLE: tl.constexpr = tl.constexpr(8192)
RUN: tl.constexpr = tl.constexpr(32)
BINS: tl.constexpr = tl.constexpr(256)
FIRST_BIN: tl.constexpr = tl.constexpr((127 - 9) << 4)
"""Distances of 2^-9 to 2^7 below the row's maximum have 16 bins of counts per power of two."""
REACH: tl.constexpr = tl.constexpr(32.0)
"""Distance below the row's maximum that the bins of weights cover at most, at temperature 1."""
DEVIATIONS: tl.constexpr = tl.constexpr(5.0)
"""Standard deviations between a guess and its estimate."""
UNSEEN: tl.constexpr = tl.constexpr(4.0)
"""Tokens that the sample may lack beside a guess, in the variance of its estimate."""


@triton.jit
def load_sample(rows, row):
    """Load runs of adjacent logits, evenly spread over the row, and which of them exist."""
    lane = tl.arange(0, SAMPLE)
    run = lane // RUN
    start = run * RUN
    if rows.vocabulary > SAMPLE:
        start = (run.to(tl.int64) * rows.vocabulary // (SAMPLE // RUN)).to(tl.int32)
    ids = start + lane % RUN
    mask = ids < rows.vocabulary
    return load_ordered(rows, row, ids, mask), mask


@triton.jit
def distance(x, top):
    """Return the distance of logits to the row's maximum; equal logits have none, also infinite ones."""
    return tl.where(x == top, 0.0, top - x)


@triton.jit
def count_edges(top, bins):
    """Return the upper bound of each bin of counts, as a logit."""
    edge = ((bins + FIRST_BIN) << 19).to(tl.float32, bitcast=True)
    return tl.where(bins > 0, top - edge, top)


@triton.jit
def guess_by_count(x, mask, top, k, factor):
    """Return logits that the k-th largest lies between; `factor` tokens of the row stand behind each of `x`."""
    key = (distance(x, top).to(tl.int32, bitcast=True) >> 19) - FIRST_BIN
    key = tl.where(mask, tl.minimum(tl.maximum(key, 0), BINS - 1), BINS - 1)
    found = tl.histogram(key, BINS).to(tl.float32)
    bins = tl.arange(0, BINS)
    # Tokens above the bin.
    seen = tl.cumsum(found, axis=0) - found
    spread = tl.where(factor > 1.0, DEVIATIONS, 0.0) * factor * tl.sqrt(seen + UNSEEN)
    above = factor * seen
    high = tl.max(tl.where(above <= k - 1 - spread, bins, 0), axis=0)
    low = tl.min(tl.where(above >= k + spread, bins, BINS), axis=0)
    # Some ulps below the bound, since the distances were rounded. Infinity minus infinity gives minus infinity.
    bound = count_edges(top, low)
    bound = nan_as_lowest(tl.where(low < BINS, bound - tl.abs(bound) * 1e-6 - 1e-30, float("-inf")))
    return bound, count_edges(top, high)


@triton.jit
def guess_by_mass(x, mask, top, total, scale, p, vocabulary, factor):
    """Return logits with the probability 1 - p at or below one between them.

    The tokens below the threshold are many and light, so that a sample knows their weight better than that of the few
    heavy ones above it.
    """
    drop = (1.0 - p) * total
    # All tokens beyond this distance together weigh less than the dropped ones.
    reach = tl.log(tl.maximum(vocabulary / tl.maximum(drop, 1e-6), 2.0)) + 1.0
    width = tl.minimum(reach, REACH) / BINS / scale
    key = tl.minimum(distance(x, top) / width, BINS - 1).to(tl.int32)
    found = tl.histogram(tl.where(mask, key, BINS - 1), BINS).to(tl.float32)
    bins = tl.arange(0, BINS)
    heavy = weight(-(bins.to(tl.float32) * width), 0.0, scale)
    # The weight of the middle of the bin. The last bin holds all that weigh nothing.
    light = tl.where(bins < BINS - 1, heavy * weight(-0.5 * width, 0.0, scale), 0.0)
    below = factor * tl.cumsum(found * light, axis=0, reverse=True)
    variance = tl.cumsum(found * light * light, axis=0, reverse=True) + UNSEEN * heavy * heavy
    spread = DEVIATIONS * factor * tl.sqrt(variance)
    high = tl.max(tl.where(below >= drop + spread, bins, 0), axis=0)
    low = tl.min(tl.where(below <= drop - spread, bins, BINS), axis=0)
    bound = tl.where(low < BINS, top - low.to(tl.float32) * width, float("-inf"))
    return bound, tl.where(high > 0, top - high.to(tl.float32) * width, top)

"""Guess of a threshold: three logits around it, from 2048 logits of its row.

A guess affects speed alone: the search measures every logit that is guessed.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ._logit_keys import load_ordered, weight
from ._logits import nan_as_lowest

SAMPLE: tl.constexpr = tl.constexpr(2048)
REACH: tl.constexpr = tl.constexpr(32.0)
"""Maximum distance of a guess below the row's maximum, at temperature 1; lower logits weigh less than e^-32."""
WIDEST: tl.constexpr = tl.constexpr(4.0)
"""Maximum distance of the outer guesses from the middle one, at temperature 1."""


@triton.jit
def load_sample(rows, row):
    """Load runs of 32 adjacent logits, evenly spread over the row, and which of them exist."""
    lane = tl.arange(0, SAMPLE)
    ids = lane // 32 * (tl.maximum(rows.vocabulary // SAMPLE, 1) * 32) + lane % 32
    mask = ids < rows.vocabulary
    return load_ordered(rows, row, ids, mask), mask


@triton.jit
def guess_by_count(x, mask, k, vocabulary):
    """Return logits that the k-th largest lies between, but for one row in hundreds."""
    top = tl.max(x, axis=0)
    w = (x > float("-inf")).to(tl.float32)
    whole = tl.sum(mask.to(tl.float32), axis=0)
    share = k.to(tl.float32) / vocabulary
    # Three standard deviations; two more tokens cover the smallest shares.
    spread = 3.0 * tl.sqrt(share * (1.0 - share) * tl.sum(w, axis=0)) + 2.0
    least = tl.maximum(share * whole - spread, 1e-30)
    most = tl.minimum(share * whole + spread, (1.0 - (1.0 - share) * 0.125) * whole)
    # Sort key: bits of the distance to the row maximum (shift-invariant). A larger key is a larger logit.
    key = 0x7F800000 - tl.where(x == top, 0.0, top - x).to(tl.int32, bitcast=True)
    # Radix search for both ends of the guess, four columns each. Every pass fixes two bits of the key, the exponent and
    # six more bits in total.
    column = tl.arange(0, 8)
    is_high = column < 4
    digit = column % 4
    need = tl.where(is_high, least, most)
    found = tl.zeros((8,), tl.int32)
    for i in range(7):
        trial = found | (digit << (29 - 2 * i))
        measure = tl.sum(tl.where(key[:, None] >= trial[None, :], w[:, None], 0.0), axis=0)
        held = tl.where((measure >= need) | (digit == 0), trial, 0)
        found = tl.where(is_high, tl.max(tl.where(is_high, held, 0)), tl.max(tl.where(is_high, 0, held)))
    # Infinity minus infinity is NaN here and means a logit of minus infinity.
    guess = nan_as_lowest(top - (0x7F800000 - found).to(tl.float32, bitcast=True))
    high = tl.max(tl.where(is_high, guess, float("-inf")), axis=0)
    return tl.max(tl.where(is_high, float("-inf"), guess), axis=0), high


@triton.jit
def mass_below(x, w, trial):
    """Return the weight of the sample's tokens at or below each trial."""
    return tl.sum(tl.where(x[:, None] <= trial[None, :], w[:, None], 0.0), axis=0)


@triton.jit
def guess_by_mass(x, mask, top, total, scale, p, vocabulary):
    """Return a logit with the probability 1 - p at or below it, and one on each side of it beyond the guess's error.

    The tokens below the threshold are many and light, so that a sample knows their weight better than that of the few
    heavy ones above it.
    """
    factor = vocabulary / tl.sum(mask.to(tl.float32), axis=0)
    w = tl.where(x > float("-inf"), factor * weight(x, top, scale), 0.0)
    drop = (1.0 - p) * total
    column = tl.arange(0, 8)
    width = REACH / scale
    middle = top - width
    for _ in range(5):
        trial = middle + width * (column.to(tl.float32) / 8.0)
        holds = (mass_below(x, w, trial) <= drop) & (column > 0)
        middle = tl.maximum(middle, tl.max(tl.where(holds, trial, float("-inf")), axis=0))
        width = width / 8.0
    # Three standard deviations, and two tokens.
    variance = tl.sum(tl.where(x <= middle, w * w, 0.0), axis=0)
    spread = 3.0 * tl.sqrt(variance) + 2.0 * weight(middle, top, scale)
    away = WIDEST / scale * tl.exp2(-column.to(tl.float32))
    is_far = mass_below(x, w, middle + away) >= drop + spread
    high = tl.min(tl.where(is_far, middle + away, top), axis=0)
    is_far = mass_below(x, w, middle - away) <= drop - spread
    low = tl.max(tl.where(is_far, middle - away, float("-inf")), axis=0)
    return low, middle, high

"""Parts shared by the kernels that verify draft trees against probabilities."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def weight(values, offset, mask):
    """Return probabilities in float64, with 0 for NaN, infinite and negative ones."""
    value = tl.load(values + offset, mask=mask, other=0.0).to(tl.float32).to(tl.float64)
    return tl.where((value > 0) & (value < float("inf")), value, 0.0)


@triton.jit
def power_of_two(number):
    """Return the power of two by which a product lies in [1, 2), so that scaling rounds nothing."""
    exponent = (number.to(tl.int64, bitcast=True) >> 52) & 0x7FF
    return ((2046 - tl.maximum(exponent, 23)) << 52).to(tl.float64, bitcast=True)


@triton.jit
def drawn_in_block(weights, column, before, bound):
    """Return a block's first token whose cumulative weight exceeds `bound`, -1 without one, and the sum up to its end.

    A token without weight is never returned, whatever the rounding of a parallel sum.
    """
    sums = before + tl.cumsum(weights, axis=0)
    none = 1 << 62
    first = tl.min(tl.where((sums > bound) & (weights > 0), column, none), axis=0)
    return tl.where(first == none, -1, first), tl.max(sums, axis=0)


@triton.jit
def last_with_weight(weights, column):
    """Return a block's last token with a weight, -1 without one."""
    return tl.max(tl.where(weights > 0, column, -1), axis=0)


def rows_of(probabilities: Any) -> tuple[Any, ...]:
    """Return a tensor [B, D, V] and its strides; None without it."""
    return (None, 0, 0, 0) if probabilities is None else (probabilities, *probabilities.stride())

"""Rows of logits for top-k and top-p: how a logit is read, its place in the order, its weight, the rules of a row."""

from __future__ import annotations

import triton
import triton.language as tl

from ._logits import exp, nan_as_lowest


@triton.jit
def ordered(x):
    """Logits as float32 for comparisons: NaN as minus infinity, minus zero as zero."""
    x = nan_as_lowest(x.to(tl.float32))
    return tl.where(x == 0.0, 0.0, x)


@triton.jit
def load_ordered(row, stride, ids, mask):
    """Logits for comparisons; masked lanes are minus infinity."""
    return ordered(tl.load(row + ids.to(tl.int64) * stride, mask=mask, other=float("-inf")))


@triton.jit
def key_of(x):
    """The unsigned number that stands where the float stands."""
    bits = x.to(tl.uint32, bitcast=True)
    return bits ^ tl.where(bits >= 0x80000000, 0xFFFFFFFF, 0x80000000).to(tl.uint32)


@triton.jit
def value_of(key):
    """The float of a key; minus infinity for a key below every float's."""
    bits = key ^ tl.where(key >= 0x80000000, 0x80000000, 0xFFFFFFFF).to(tl.uint32)
    return nan_as_lowest(bits.to(tl.float32, bitcast=True))


@triton.jit
def weight(x, top):
    """exp(x - top), also where both are infinite."""
    return tl.where(x == top, 1.0, exp(x - top))


@triton.jit
def rules(ks, ps, row, vocabulary, HAS_K: tl.constexpr, HAS_P: tl.constexpr):
    """k and p of a row; `vocabulary` and 1 where it has no such rule."""
    k = vocabulary + tl.zeros((), tl.int32)
    p = tl.full((), 1.0, tl.float32)
    if HAS_K:
        given = tl.load(ks + row).to(tl.int64)
        k = tl.where((given < 1) | (given > vocabulary), vocabulary, given).to(tl.int32)
    if HAS_P:
        p = tl.maximum(tl.load(ps + row), 0.0)
    return k, p

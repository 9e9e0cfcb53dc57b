"""Loads and reductions of logits. NaN counts as minus infinity, so that every argmax stays in its block."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def nan_as_lowest(x):
    """Replace NaN by minus infinity. A maximum would not do: Triton 3.7's interpreter propagates NaN through it."""
    return tl.where(x > float("-inf"), x, float("-inf"))


@triton.jit
def load_logits(row, stride, ids, mask):
    """Load logits as float32, NaN and masked lanes as minus infinity."""
    return nan_as_lowest(tl.load(row + ids.to(tl.int64) * stride, mask=mask, other=float("-inf")).to(tl.float32))


@triton.jit
def exp(x):
    """Return e^x with subnormal results flushed to zero, which halves the instructions of ``tl.exp``."""
    return tl.exp2(x * 1.4426950408889634)


@triton.jit
def block_argmax(x, BLOCK: tl.constexpr):
    """Return the maximum of a block without NaN and its lane, the lowest lane for equal maxima.

    Two plain reductions cost less than one reduction of pairs.
    """
    top = tl.max(x, axis=0)
    return top, tl.min(tl.where(x == top, tl.arange(0, BLOCK), BLOCK), axis=0)

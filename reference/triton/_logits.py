"""Logits as every kernel reads them: NaN counts as minus infinity, so no maximum and no argmax can leave its block."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def nan_as_lowest(x):
    """NaN becomes minus infinity. Not by a maximum, which takes the NaN in the interpreter of Triton 3.7."""
    return tl.where(x > float("-inf"), x, float("-inf"))


@triton.jit
def load_logits(row, stride, ids, mask):
    """Logits as float32, NaN and masked lanes as minus infinity."""
    return nan_as_lowest(tl.load(row + ids.to(tl.int64) * stride, mask=mask, other=float("-inf")).to(tl.float32))


@triton.jit
def exp(x):
    """e to the x; subnormal results are zero, which spares half of the instructions of ``tl.exp``."""
    return tl.exp2(x * 1.4426950408889634)


@triton.jit
def block_argmax(x, BLOCK: tl.constexpr):
    """The maximum of a block without NaN, and its lane, of equal maxima the lowest.

    Two plain reductions cost less than one of pairs.
    """
    top = tl.max(x, axis=0)
    return top, tl.min(tl.where(x == top, tl.arange(0, BLOCK), BLOCK), axis=0)

"""Print what `npu_language.get_element` returns in the interpreter: a number beside infinities, and of a mask."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl

from verispec.engines.adapters import npu_language

npu_language.extend()


@triton.jit
def _kernel(values, out, SIZE: tl.constexpr):
    x = tl.load(values + tl.arange(0, SIZE))
    for i in range(SIZE):
        tl.store(out + i, tl.get_element(x, (i,)))
        if tl.get_element(x > 1.0, (i,)):
            tl.store(out + SIZE + i, 1.0)


values = torch.tensor([float("-inf"), 0.5, 3.25, float("inf")])
out = torch.zeros(8)
_kernel[(1,)](values, out, SIZE=4)
print(out.tolist())

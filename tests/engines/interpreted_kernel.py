"""The child process: what a kernel in Triton's interpreter sees of NaN and of a bool among its arguments, as JSON."""

from __future__ import annotations

import json
import os

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl

from verispec.engines import triton_interpreter


@triton.jit
def kernel(out, values, flag, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    x = tl.load(values + lane)
    top, at = tl.max(x, axis=0, return_indices=True)
    low, below = tl.min(x, axis=0, return_indices=True)
    first = tl.load(values)
    tl.store(out, top)
    tl.store(out + 1, at)
    tl.store(out + 2, low)
    tl.store(out + 3, below)
    tl.store(out + 4, tl.maximum(first, 1.0))
    tl.store(out + 5, tl.minimum(first, 1.0))
    if flag:
        tl.store(out + 6, 1.0)


if __name__ == "__main__":
    triton_interpreter.prepare("a test")
    values = torch.tensor([float("nan"), 2.0, 8.0, 4.0])
    answers = []
    for flag in (False, True):
        out = torch.zeros(7)
        kernel[(1,)](out, values, flag, BLOCK=4)
        answers.append(out.tolist())
    print(json.dumps(answers))

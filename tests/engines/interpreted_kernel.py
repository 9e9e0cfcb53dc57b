"""The child process: what a kernel in Triton's interpreter makes of NaN, bools and bfloat16, and its work, as JSON."""

from __future__ import annotations

import inspect
import json
import os
from collections import Counter
from unittest.mock import patch

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder

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
    tl.store(out + 7 + lane, 1.0, mask=(lane < 2) & (tl.load(values + 1) > 1.0))
    if flag:
        tl.store(out + 6, 1.0)


@triton.jit
def narrowing_kernel(out, values, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(out + lane, tl.load(values + lane).to(tl.bfloat16))


@triton.jit
def summing_kernel(out, values, BLOCK: tl.constexpr):
    whole = tl.load(values + tl.arange(0, BLOCK))
    tl.store(out, tl.sum(whole) + tl.max(whole))


def work() -> tuple[bool, int, bool, int]:
    """Return the work of one launch.

    First, whether it searches each package for builtins at most once, and the integer sums of one addition. Then,
    whether it patches the language at most once, and how often a look-up of a NumPy dtype hashes a type.
    """
    searches, sums, patched, hashed = Counter[object](), 0, 0, 0
    members, add = inspect.getmembers, InterpreterBuilder.create_add
    patch_core, hash_type = interpreter._patch_lang_core, tl.dtype.__hash__

    def counted_members(package, *others):
        searches[package] += 1
        return members(package, *others)

    def counted_add(self, left, right):
        nonlocal sums
        sums += 1
        return add(self, left, right)

    def counted_patch(*arguments):
        nonlocal patched
        patched += 1
        return patch_core(*arguments)

    def counted_hash(self):
        nonlocal hashed
        hashed += 1
        return hash_type(self)

    with (
        patch.object(inspect, "getmembers", counted_members),
        patch.object(interpreter, "_patch_lang_core", counted_patch),
        patch.object(InterpreterBuilder, "create_add", counted_add),
    ):
        summing_kernel[(1,)](torch.zeros(1, dtype=torch.int32), torch.ones(4, dtype=torch.int32), BLOCK=4)
    with patch.object(tl.dtype, "__hash__", counted_hash):
        interpreter._get_np_dtype(tl.float32)
    return max(searches.values(), default=0) <= 1, sums, patched <= 1, hashed


def narrowed(values: torch.Tensor) -> torch.Tensor:
    """Return what a kernel casts `values` [power of two] to."""
    out = torch.zeros(len(values), dtype=torch.bfloat16)
    narrowing_kernel[(1,)](out, values, BLOCK=len(values))
    return out


def is_rounded_like_torch() -> bool:
    """Return True if bfloat16 casts give the bits that torch's give, for ties, subnormals, infinities and NaN."""
    ties = [1 + 2.0**-8, -1 - 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-23, 2 - 2.0**-9, -0.0, 1e-40, 2.0**-133, 3.4e38]
    values = torch.tensor([*ties, float("inf"), float("-inf"), *torch.linspace(-7, 7, 22).exp().tolist()])
    nan = torch.tensor([0x7FFFFFFF, -1, 0x7F800001, -0x7FFFFF], dtype=torch.int32).view(torch.float32)
    is_same = torch.equal(narrowed(values).view(torch.int16), values.to(torch.bfloat16).view(torch.int16))
    return is_same and bool(narrowed(nan).isnan().all())


if __name__ == "__main__":
    triton_interpreter.prepare("a test")
    values = torch.tensor([float("nan"), 2.0, 8.0, 4.0])
    answers = []
    for flag in (False, True):
        out = torch.zeros(9)
        kernel[(1,)](out, values, flag, BLOCK=4)
        answers.append(out.tolist())
    print(json.dumps([*answers, is_rounded_like_torch(), *work()]))

"""Sums over the lanes of a warp in PTX, the assembly language of NVIDIA's GPUs."""

from __future__ import annotations

import re

INSTRUCTION = re.compile(r"^\s+(?:@!?%p\d+ )?([a-z][a-z0-9_.]*)\s+(%[^;]*);", re.MULTILINE)
"""An instruction of PTX that writes a register: its name and its operands."""


def has_fused_sums(ptx: str) -> bool:
    """Return True if a product and another lane's number are added with one rounding, or may be."""
    shuffled: set[str] = set()
    products: set[str] = set()
    for name, operands in INSTRUCTION.findall(ptx):
        result, *inputs = [operand.strip() for operand in operands.split(",")]
        addend = inputs[-1] if inputs else ""
        if name.startswith("fma.") and addend in shuffled:
            return True
        if name in ("add.f32", "add.f64") and shuffled & {*inputs} and products & {*inputs}:
            return True
        shuffled.discard(result)
        products.discard(result)
        if name.startswith("shfl."):
            shuffled.add(result)
        elif name in ("mul.f32", "mul.f64"):
            products.add(result)
    return False

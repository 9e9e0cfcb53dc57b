"""A child process: compile the kernels of every op for a GPU, without one; a line of JSON for each case."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from lane_sums import has_fused_sums
from op_cases import Size, make, ops, variants
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import CompiledKernel
from triton.runtime import driver

from verispec.reference import triton

SIZE = Size(9001)
"""Rows of several parts."""


class Compiler:
    """Stands for the driver of a GPU that is not there: it names the target, and kernels start nowhere."""

    utils = SimpleNamespace(get_device_properties=lambda device: {"max_shared_mem": 232448})

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


uneven: set[str] = set()
"""Kernels of the current case whose lanes hold different sums."""


def not_loaded(kernel: CompiledKernel) -> None:
    """Start the compiled kernel nowhere."""
    kernel.module = kernel.function = 1
    kernel._run = lambda *args, **kwargs: None
    if has_fused_sums(kernel.asm["ptx"]):
        uneven.add(kernel.name)


def results(capability: int) -> Iterator[dict[str, Any]]:
    driver.set_active(Compiler(capability))
    CompiledKernel._init_handles = not_loaded
    for op in ops():
        for variant in dict.fromkeys(("plain", *(set(variants(op)) & {"one_hot", "other", "limits", "ends"}))):
            problem = ""
            uneven.clear()
            arguments = make(op, variant, SIZE).arguments
            tensors = {n: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for n, v in arguments.items()}
            try:
                triton.op(op)(**tensors)
            except Exception:
                problem = traceback.format_exc()[-1500:]
            yield {"op": op, "case": variant, "problem": problem, "uneven": sorted(uneven)}


if __name__ == "__main__":
    for result in results(int(sys.argv[1])):
        print(json.dumps(result), flush=True)

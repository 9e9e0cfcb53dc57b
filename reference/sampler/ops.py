"""The ops by name, for the device that their tensors live on.

This is the only place where the reference engine decides which implementation runs: C++ kernels for
CPU tensors, Triton kernels for CUDA tensors and where Triton's interpreter is switched on. Samplers, proposers and
runners just call.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

PLACEHOLDER = -1
"""Stands behind the last token of a request, and for a draft that is none."""


@cache
def _implementation(name: str, device_type: str) -> Callable[..., Any]:
    triton = device_type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"
    kernels = importlib.import_module(f"verispec.reference.{'triton' if triton else 'cpu'}")
    implementation: Callable[..., Any] = kernels.op(name)
    return implementation


def run(name: str, device: torch.device, **arguments: Any) -> None:
    """Run the op `name` on `device`; parameters as its contract names them, outputs written in place."""
    _implementation(name, device.type)(**arguments)

"""The ops by name, for the device of their tensors.

Only this module selects implementations: C++ kernels for CPU tensors, Triton kernels for CUDA tensors and in Triton's
interpreter. Samplers, proposers and runners call `run`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

PADDING_TOKEN = -1
"""Follows the last token of a request, and marks a padded draft."""


@cache
def _implementation(name: str, device_type: str) -> Callable[..., Any]:
    triton = device_type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"
    kernels = importlib.import_module(f"verispec.reference.{'triton' if triton else 'cpu'}")
    implementation: Callable[..., Any] = kernels.op(name)
    return implementation


def run(name: str, device: torch.device, **arguments: Any) -> None:
    """Run the op `name` on `device`.

    Args:
        name: name of the op.
        device: device of all tensors.
        **arguments: the contract's parameters; outputs are written in place.
    """
    _implementation(name, device.type)(**arguments)

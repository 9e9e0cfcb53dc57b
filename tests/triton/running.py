"""Run a case through kernels that take torch tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from cases import Array, Case

from verispec.reference.contracts import Scalar, load

GUARD = 99


def run(case: Case, op: Callable[..., None], device: str, *, strided: bool = False) -> tuple[dict[str, Array], str]:
    """The outputs, and what else the op did that it must not: inputs changed, memory between elements written."""
    tensors: dict[str, Any] = {}
    buffers: dict[str, Any] = {}
    for name, value in case.arguments.items():
        if not isinstance(value, np.ndarray):
            tensors[name] = value
        elif name in case.inplace:
            tensors[name] = None
        else:
            buffers[name], tensors[name] = _tensor(value, name in case.narrow, device, strided)
    for output, source in case.inplace.items():
        tensors[output] = tensors[source]
    for p in load(case.op).params:
        if isinstance(p, Scalar) and p.stride_of:
            tensors[p.name] = tensors[p.stride_of].stride(0)
    before = {name: buffer.clone() for name, buffer in buffers.items()}
    op(**tensors)
    outputs = set(case.outputs())
    changed = set(case.inplace.values())
    problems = []
    for name, buffer in buffers.items():
        if name in outputs | changed:
            if strided and not torch.equal(_gaps(buffer), _gaps(before[name])):
                problems.append(f"{name}: memory between its elements was written")
        elif not torch.equal(_bits(buffer), _bits(before[name])):
            problems.append(f"{name}: an input was changed")
    return {name: _array(tensors[name]) for name in outputs}, "; ".join(problems)


def _tensor(value: Array, narrow: bool, device: str, strided: bool) -> tuple[Any, Any]:
    tensor = torch.from_numpy(value.copy()).to(device)
    if narrow:
        tensor = tensor.to(torch.bfloat16)
    if not strided or tensor.dim() == 0:
        return tensor, tensor
    # Twice the size in every dimension: no stride is that of a contiguous tensor.
    buffer = torch.full([2 * n for n in tensor.shape], GUARD, device=device).to(tensor.dtype)
    view = buffer[tuple(slice(None, None, 2) for _ in tensor.shape)]
    view.copy_(tensor)
    return buffer, view


def _gaps(buffer: Any) -> Any:
    gaps = buffer.clone()
    gaps[tuple(slice(None, None, 2) for _ in buffer.shape)] = 0
    return gaps


def _bits(tensor: Any) -> Any:
    """NaN equals NaN as bits."""
    return tensor.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)


def _array(tensor: Any) -> Array:
    tensor = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    array: Array = tensor.cpu().numpy()
    return array

"""Run a case through kernels that take torch tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from op_cases import Array, Case

from verispec.reference.contracts import Scalar, load

GUARD = 99


def run(case: Case, op: Callable[..., None], device: str, *, layout: str = "dense") -> tuple[dict[str, Array], str]:
    """Return the outputs, and the forbidden effects of the op: changed inputs, written gaps between elements.

    Args:
        case: arguments of the call.
        op: launcher under test.
        device: device of the tensors.
        layout: "dense", "strided" (no stride of a contiguous tensor), "column" (trailing axes of 1) or "far" (rows of
            large matrices lie more than 2^31 elements apart).
    """
    tensors: dict[str, Any] = {}
    buffers: dict[str, Any] = {}
    for name, value in case.arguments.items():
        if not isinstance(value, np.ndarray):
            tensors[name] = value
        elif name in case.inplace:
            tensors[name] = None
        else:
            buffers[name], tensors[name] = _tensor(value, name in case.narrow, device, layout)
    for output, source in case.inplace.items():
        tensors[output] = tensors[source]
    for p in load(case.op).params:
        if isinstance(p, Scalar) and p.stride_of:
            tensors[p.name] = tensors[p.stride_of].stride(0)
    if layout == "column":
        for name in columns(case.op):
            tensors[name] = tensors[name].unsqueeze(1)
    before = {name: buffer.clone() for name, buffer in buffers.items() if buffer is not None}
    op(**tensors)
    outputs = set(case.outputs())
    changed = set(case.inplace.values())
    problems = []
    for name, saved in before.items():
        buffer = buffers[name]
        if name in outputs | changed:
            if layout == "strided" and not torch.equal(_gaps(buffer), _gaps(saved)):
                problems.append(f"{name}: memory between its elements was written")
        elif not torch.equal(_bits(buffer), _bits(saved)):
            problems.append(f"{name}: an input was changed")
    found = {name: _array(tensors[name]) for name in outputs}
    return {name: a.reshape(case.arguments[name].shape) for name, a in found.items()}, "; ".join(problems)


def columns(op: str) -> list[str]:
    """Return the op's tensors that may have a trailing axis of 1."""
    return [tensor.name for tensor in load(op).tensors if tensor.column]


def _tensor(value: Array, narrow: bool, device: str, layout: str) -> tuple[Any, Any]:
    """The memory to watch and the tensor in it; too large a memory is not watched."""
    tensor = torch.from_numpy(value.copy()).to(device)
    if narrow:
        tensor = tensor.to(torch.bfloat16)
    if layout == "far" and tensor.dim() == 2 and tensor.shape[0] > 1 and tensor.shape[1] > 10**4:
        stride = 2**31 // (tensor.shape[0] - 1) + tensor.shape[1]
        buffer = torch.empty((tensor.shape[0] - 1) * stride + tensor.shape[1], dtype=tensor.dtype, device=device)
        view = buffer.as_strided(tensor.shape, (stride, 1))
        view.copy_(tensor)
        return None, view
    if layout != "strided" or tensor.dim() == 0:
        return tensor, tensor
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


def cache_holds_what_was_drawn_from(op: Callable[..., None]) -> bool:
    """Return True if gumbel_sample samples from a cache narrower than the logits (GUM-5).

    NumPy has no bfloat16, so instead of the oracle the op itself says so: from the cached logits it draws
    the same tokens again.
    """

    def draw(logits: Any) -> tuple[Any, Any]:
        rows, count = torch.arange(len(logits), dtype=torch.int32), len(logits)
        tokens, cache = torch.zeros(count, dtype=torch.int64), torch.zeros(count, 1, 300, dtype=torch.bfloat16)
        column = torch.zeros(count, dtype=torch.int32)
        op(tokens, logits, rows, torch.full((count,), 0.001), rows.long(), rows.long(), True, True, cache, column)
        return tokens, cache

    logits = torch.randn(40, 300, generator=torch.Generator().manual_seed(5)) * 0.01
    tokens, cache = draw(logits)
    again, _ = draw(cache[:, 0].float())
    return bool((tokens == again).all() and torch.allclose(cache[:, 0].float(), logits, rtol=2**-7, atol=0))


def negative_lengths_write_inside(op: Callable[..., None]) -> bool:
    """Return True if build_draft_tree changes nothing around its mask under lengths that its contract excludes.

    No kernel checks a `minimum`: below it results are unspecified, but an index is compared with its bounds.
    """
    places = torch.arange(2**13)
    for lengths in ([-40, 3], [2, -9], [-300, 300]):
        memory = places % 2 == 0
        links = [torch.full((2, 4), -1) for _ in range(3)]
        selected, parents = torch.tensor([[0, 1, 2]] * 2), torch.zeros((2, 1), dtype=torch.int64)
        outputs = (memory[4000:4060], torch.zeros(8, dtype=torch.int64), *links)
        op(parents, selected, torch.tensor(lengths), *outputs, 4, 1, 4, 0)
        is_changed = memory != (places % 2 == 0)
        if is_changed[:4000].any() or is_changed[4060:].any():
            return False
    return True

"""Tensors as addresses: all that a kernel needs of one, and overlap tests.

Works for torch and NumPy on any device, and does not import torch.
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple


class TensorView(NamedTuple):
    """Address, shape and strides of a tensor. Strides are in elements and may be zero or negative.

    Attributes:
        dense: True if the elements are contiguous and in order.
    """

    pointer: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: str
    itemsize: int
    dense: bool
    writeable: bool

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The addresses, for NumPy's overlap solver, which reads no element."""
        return {
            "version": 3,
            "typestr": f"|V{self.itemsize}",
            "shape": tuple(self.shape),
            "strides": tuple(stride * self.itemsize for stride in self.strides),
            "data": (self.pointer, True),
        }


_torch_types: dict[Any, tuple[str, int]] = {}
_new = tuple.__new__  # the constructor of a NamedTuple is a Python function around it


def view_of(value: Any) -> TensorView | None:
    """Return the view of a torch tensor or a NumPy array; None for anything else."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        dtype = value.dtype
        named = _torch_types.get(dtype)
        if named is None:
            named = _torch_types[dtype] = (str(dtype).removeprefix("torch."), value.element_size())
        device = "cpu" if value.is_cpu else value.device.type
        try:
            pointer, strides, dense = value.data_ptr(), value.stride(), value.is_contiguous()
        except RuntimeError:  # a sparse tensor has no strides
            return None
        return _new(TensorView, (pointer, named[0], value.shape, strides, device, named[1], dense, True))
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        dtype, size = value.dtype, value.itemsize
        if not (value.flags.aligned and dtype.isnative) or any(s % size for s in value.strides):
            return None
        strides = tuple(s // size for s in value.strides)
        pointer, dense = value.__array_interface__["data"][0], value.flags.c_contiguous
        return TensorView(pointer, dtype.name, value.shape, strides, "cpu", size, dense, value.flags.writeable)
    return None


def span(view: TensorView) -> tuple[int, int]:
    """Return the first address of a view that is not empty, and the address after its last byte."""
    if view.dense:
        return view.pointer, view.pointer + math.prod(view.shape) * view.itemsize
    reaches = [(n - 1) * stride * view.itemsize for n, stride in zip(view.shape, view.strides, strict=True)]
    below = sum(reach for reach in reaches if reach < 0)
    return view.pointer + below, view.pointer + sum(reaches) - below + view.itemsize


def injective(view: TensorView) -> bool:
    """Return True if no two elements share memory; compares offsets where strides interleave."""
    reach = 0
    for stride, size in sorted((abs(s), n) for s, n in zip(view.strides, view.shape, strict=True) if n > 1):
        if stride <= reach:
            break
        reach += stride * (size - 1)
    else:
        return True
    import numpy as np

    offsets = sum(index * s for index, s in zip(np.indices(view.shape, sparse=True), view.strides, strict=True))
    return len(np.unique(offsets)) == math.prod(view.shape)


def share_memory(one: TensorView, other: TensorView) -> bool:
    """Return True if an element of one view overlaps an element of the other; the answer is exact."""
    import numpy as np

    return np.shares_memory(np.asarray(one), np.asarray(other))

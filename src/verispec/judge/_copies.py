"""Large batches made of copies of a small one, so that the oracle's answers for the small one are those of all copies.

An op whose tensors have rows of requests, of tokens and of states treats the requests of a batch alike. A batch of
`copies` times the same requests, each with rows and states of its own, therefore has `copies` times the same outputs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verispec.reference.contracts import Contract, Scalar, Tensor

Array = np.ndarray[Any, Any]

ROWS = ("B", "L", "N", "R", "T", "B*D")
"""Axes of requests, of tokens, of states and of nodes, in the contracts of all ops."""


def is_repeatable(contract: Contract) -> bool:
    """Return True if no scalar and no sum of axes depends on the size of one of `ROWS`."""
    known = {*contract.axes, *ROWS, "B+1"}
    sums = {axis for tensor in contract.tensors for axis in tensor.shape if str(axis) not in known}
    if "M" in contract.axes:  # a mask may have elements of no request
        return False
    sized = {p.axis for p in contract.params if isinstance(p, Scalar)}
    return not any(set(re.findall(r"\w+", str(axis))) & {*ROWS} for axis in sums) and not sized & {*ROWS}


def repeated(
    contract: Contract, values: Mapping[str, Any], shapes: Mapping[str, Sequence[int]], copies: int
) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Return the arguments and shapes of a batch that is `copies` times the given one.

    Args:
        contract: contract of a repeatable op.
        values: arguments of the small batch, by parameter name; its rows of padding are left out.
        shapes: shapes of outputs that the contract's axes do not determine.
        copies: number of copies.
    """
    sizes = row_sizes(contract, values)
    large = dict(values)
    for tensor in contract.tensors:
        if values.get(tensor.name) is None:
            continue
        array = _cut(np.asarray(values[tensor.name]), tensor, sizes, 0)
        if tensor.cumulative:
            starts = [0] if tensor.shape == ("B+1",) else []
            large[tensor.name] = np.cumsum([*starts, *np.tile(np.diff(array, prepend=[] if starts else [0]), copies)])
            continue
        tiled = np.tile(array, [copies if axis in sizes else 1 for axis in tensor.shape])
        if tensor.indexes:
            blocks = _blocks(tensor.indexes, copies, range(copies))
            offset = np.repeat(blocks, len(array)) * sizes.get(tensor.indexes, 0)
            tiled = np.where(tiled < 0, tiled, tiled + offset.reshape(-1, *[1] * (array.ndim - 1)))
        large[tensor.name] = tiled
    wide = {
        t.name: tuple(
            sizes[axis] * copies if axis in sizes else n for axis, n in zip(t.shape, shapes[t.name], strict=True)
        )
        for t in contract.tensors
        if t.name in shapes
    }
    return large, wide


def joined(contract: Contract, batches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the arguments of one batch that holds the requests of all `batches`, in their order.

    Args:
        contract: contract of a repeatable op.
        batches: arguments of batches with equal scalars and sizes of all axes but `ROWS`; their rows of padding are
            left out.
    """
    sizes = [row_sizes(contract, batch) for batch in batches]
    large = dict(batches[0])
    for tensor in contract.tensors:
        if large.get(tensor.name) is None or not any(str(axis) in sizes[0] or axis == "B+1" for axis in tensor.shape):
            continue
        arrays = [np.asarray(batch[tensor.name]) for batch in batches]
        if tensor.cumulative:
            starts = [0] if tensor.shape == ("B+1",) else []
            counts = [np.diff(array, prepend=[] if starts else [0]) for array in arrays]
            large[tensor.name] = np.cumsum(np.concatenate([np.asarray(starts, dtype=np.int64), *counts]))
            continue
        parts = [_cut(array, tensor, own, 0) for array, own in zip(arrays, sizes, strict=True)]
        if tensor.indexes:
            before = np.cumsum([0, *(own.get(tensor.indexes, 0) for own in sizes)]).tolist()
            parts = [np.where(part < 0, part, part + first) for part, first in zip(parts, before, strict=False)]
        axis = next(i for i, name in enumerate(tensor.shape) if str(name) in sizes[0])
        large[tensor.name] = np.concatenate(parts, axis=axis)
    return large


def row_sizes(contract: Contract, values: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of the axes `ROWS` of a batch; rows of tokens end where the cumulative counts end."""
    sizes: dict[str, int] = {}
    for tensor in contract.tensors:
        value = values.get(tensor.name)
        if value is not None:
            for axis, size in zip(tensor.shape, np.shape(value), strict=False):
                if axis in ROWS:
                    sizes.setdefault(str(axis), size)
            if tensor.shape[:2] == ("B", "D"):
                sizes["B*D"] = int(np.prod(np.shape(value)[:2]))
    for tensor in contract.tensors:
        if tensor.cumulative and tensor.cumulative.limit and values.get(tensor.name) is not None:
            ends = np.asarray(values[tensor.name])
            sizes[tensor.cumulative.limit] = int(ends[-1]) if len(ends) else 0
    return sizes


def copies_of(
    contract: Contract, arrays: Mapping[str, Any], sizes: Mapping[str, int], copies: int, which: range
) -> dict[str, Array]:
    """Return arrays of a repeated batch as those of its copies, each as if it were alone.

    Args:
        contract: contract of a repeatable op.
        arrays: arrays of the whole batch, by parameter name.
        sizes: `row_sizes` of one copy.
        copies: number of copies in the batch.
        which: numbers of the copies that are returned.

    Returns:
        Arrays by parameter name; the first axis is that of copies, the others are those of one of them.
    """
    own = {}
    for tensor in contract.tensors:
        array = arrays.get(tensor.name)
        if array is None:
            continue
        if tensor.cumulative:
            own[tensor.name] = _own_counts(array, tensor, sizes, which)
            continue
        parts = _parts(array, tensor, sizes, copies, which)
        if tensor.indexes:
            offset = (_blocks(tensor.indexes, copies, which) * sizes.get(tensor.indexes, 0)).reshape(
                -1, *[1] * array.ndim
            )
            parts = np.where(parts < 0, parts, parts - offset)
        own[tensor.name] = parts
    return own


def _parts(array: Array, tensor: Tensor, sizes: Mapping[str, int], copies: int, which: range) -> Array:
    """Return the parts of an array that belong to copies: [len(which), *shape of one]."""
    axes = [str(axis) for axis in tensor.shape[: array.ndim]]
    rows = [i for i, axis in enumerate(axes) if axis in sizes]
    if len(rows) != 1:
        return np.stack([_cut(array, tensor, sizes, copy, copies) for copy in which])
    (row,) = rows
    first = _blocks(axes[row], copies, which)[:, None] * sizes[axes[row]]
    taken = np.moveaxis(array, row, 0)[first + np.arange(sizes[axes[row]])]
    return np.moveaxis(taken, 1, 1 + row)


def _own_counts(array: Array, tensor: Tensor, sizes: Mapping[str, int], which: range) -> Array:
    """Return the cumulative counts of copies, each from 0: [len(which), *shape of one]."""
    has_start = tensor.shape == ("B+1",)
    sums = array if has_start else np.concatenate([np.zeros(1, array.dtype), array])
    first = np.asarray(which)[:, None] * sizes["B"]
    counts: Array = sums[first + np.arange(0 if has_start else 1, sizes["B"] + 1)] - sums[first]
    return counts


def _blocks(axis: str, copies: int, which: range) -> Array:
    """Return the numbers of copies' blocks along an axis.

    States are in reverse order, so that the last copy has the low ones, and no state is near its request's number.
    """
    blocks = np.arange(which.start, which.stop)
    return copies - 1 - blocks if axis == "R" else blocks


def _cut(array: Array, tensor: Tensor, sizes: Mapping[str, int], copy: int, copies: int = 1) -> Array:
    """Return the part of an array that belongs to a copy."""
    at = []
    for axis in tensor.shape[: array.ndim]:
        size = sizes.get(str(axis))
        (block,) = _blocks(str(axis), copies, range(copy, copy + 1)).tolist()
        at.append(slice(None) if size is None else slice(block * size, (block + 1) * size))
    return array if tensor.cumulative else array[tuple(at)]

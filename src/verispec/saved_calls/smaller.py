"""Smaller variants of a call: fewer requests, tokens and columns, plainer layouts, simpler values.

Every variant stays within the op's contract. Values change in ways that keep what is special about them: integers and
zeros stay, rows that sum to one go on doing so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verispec.judge import OpCall
from verispec.reference.contracts import Contract, Scalar, Tensor

Array = np.ndarray[Any, Any]
Chunk = tuple[int, int]
_IDS = re.compile(r"token_ids|argmax|_ids")
"""Names of tensors that hold token ids."""


@dataclass(frozen=True, slots=True)
class _Axes:
    """Sizes and places of the axes of one call."""

    contract: Contract
    arrays: Mapping[str, Array]

    def dims(self, axis: str) -> dict[str, int]:
        """Return by tensor the dimension that is `axis` itself, with its whole length."""
        found = {}
        for tensor in self.contract.tensors:
            for n, entry in enumerate(tensor.shape):
                if tensor.name in self.arrays and str(entry).removeprefix(">=") == axis:
                    found[tensor.name] = n
        return found

    @property
    def counts(self) -> Tensor | None:
        """The tensor of cumulative counts that divides a packed axis among requests, if there is one."""
        return next((t for t in self.contract.tensors if t.cumulative and t.name in self.arrays), None)


def variants(contract: Contract, call: OpCall) -> Iterator[OpCall]:
    """Yield variants of `call`, the ones that save more first."""
    arrays = {t.name: np.asarray(call.values[t.name]) for t in contract.tensors if call.values.get(t.name) is not None}
    axes = _Axes(contract, arrays)
    packed: set[str] = set()
    if (counts := axes.counts) is not None and counts.cumulative is not None:
        yield from _packed(axes, counts, call)
        packed = {str(counts.shape[0]).partition("+")[0], counts.cumulative.limit}
    for axis in contract.axes:
        if axis not in packed:
            yield from _along(axes, axis, call)
    yield from _plainer(call)
    yield from _simpler(axes, call)


def size(call: OpCall) -> tuple[int, int, int, int]:
    """Return the measures that shrinking reduces: elements, sizes, special layouts and dtypes, digits of values."""
    arrays = [np.asarray(v) for v in call.values.values() if v is not None and np.ndim(v)]
    digits = sum(len(f"{v:g}") for a in arrays for v in a.ravel()[:4096].astype(np.float64))
    special = sum(layout != "dense" for layout in call.layouts.values()) + len(call.dtypes)
    lengths = sum(v for v in call.values.values() if isinstance(v, int) and not isinstance(v, bool))
    outputs = sum(math.prod(shape) for shape in call.shapes.values())
    return sum(a.size for a in arrays) + outputs, lengths, special, digits


def _chunks(length: int) -> Iterator[Chunk]:
    """Yield halves, quarters and so on down to single elements, from the end."""
    step = max(length // 2, 1)
    while length:
        for start in range(length - step, -1, -step):
            yield start, start + step
        if step == 1:
            return
        step //= 2


def _packed(axes: _Axes, counts: Tensor, call: OpCall) -> Iterator[OpCall]:
    """Yield the call without some of its requests, then without some tokens of a request."""
    assert counts.cumulative is not None
    starts = "+1" in str(counts.shape[0])
    values = axes.arrays[counts.name]
    ends = values[1:] if starts else values
    begins = values[:-1] if starts else np.concatenate([[0], values[:-1]])
    request_axis, token_axis = str(counts.shape[0]).partition("+")[0], counts.cumulative.limit

    def without(requests: list[int], tokens: list[int]) -> OpCall:
        changed = dict(axes.arrays)
        for name, dim in axes.dims(request_axis).items():
            if name != counts.name:
                changed[name] = np.delete(changed[name], requests, axis=dim)
        if token_axis:
            for name, dim in axes.dims(token_axis).items():
                kept = [t for t in tokens if t < changed[name].shape[dim]]
                changed[name] = np.delete(changed[name], kept, axis=dim)
        lengths = [
            int(end - begin) - sum(begin <= t < end for t in tokens)
            for b, (begin, end) in enumerate(zip(begins, ends, strict=True))
            if b not in requests
        ]
        sums = np.cumsum([int(begins[0]) if starts and len(begins) else 0, *lengths])
        changed[counts.name] = (sums if starts else sums[1:]).astype(values.dtype)
        shapes = {
            name: tuple(
                length - len(tokens) if str(entry) == token_axis else length
                for length, entry in zip(shape, _shape(axes.contract, name), strict=True)
            )
            for name, shape in call.shapes.items()
        }
        return _with(axes.contract, replace(call, shapes=shapes), changed, request_axis, token_axis)

    longest = int(max(ends - begins, default=0))
    if counts.cumulative.step:
        yield from _no_longer_than(axes, counts.cumulative.step, longest, call)
    for start, stop in _chunks(len(ends)):
        gone = list(range(start, stop))
        yield without(gone, [t for b in gone for t in range(int(begins[b]), int(ends[b]))])
    least = 1 if starts else 0  # a request has at least the row of its bonus token, and may have no draft
    for b in range(len(ends)):
        if ends[b] - begins[b] > least:
            for token in range(int(ends[b]) - 1, int(begins[b]) - 1, -1):
                yield without([], [token])


def _no_longer_than(axes: _Axes, axis: str, longest: int, call: OpCall) -> Iterator[OpCall]:
    """Yield the call whose maximum number of tokens per request, `axis`, is what its counts need."""
    scalars = [p for p in axes.contract.params if isinstance(p, Scalar) and axis in (p.axis, p.name)]
    stated = [int(call.values[p.name]) for p in scalars if call.values.get(p.name) is not None]
    if not stated or min(stated) <= max(longest, 1):
        return
    less = min(stated) - max(longest, 1)
    values = {**call.values, **{p.name: int(call.values[p.name]) - less for p in scalars}}
    for tensor in axes.contract.tensors:
        for dim, entry in enumerate(tensor.shape):
            if str(entry).removeprefix(">=").partition("+")[0] == axis and tensor.name in axes.arrays:
                array = np.asarray(values[tensor.name])
                values[tensor.name] = np.delete(array, range(array.shape[dim] - less, array.shape[dim]), axis=dim)
    yield replace(call, values=values)


def _along(axes: _Axes, axis: str, call: OpCall) -> Iterator[OpCall]:
    """Yield the call without some indices of `axis` in all tensors that have it; token ids are renumbered."""
    dims = axes.dims(axis)
    if not dims:
        return
    length = min(axes.arrays[name].shape[dim] for name, dim in dims.items())
    for start, stop in _chunks(length):
        left = length - (stop - start)
        if left < (2 if axis == "V" else 1):
            continue  # no element is a special case of its own, and so is a vocabulary of one token
        gone = list(range(start, stop))
        changed = {n: np.delete(a, gone, axis=dims[n]) if n in dims else a for n, a in axes.arrays.items()}
        for name, array in changed.items():
            if axis == "V" and _IDS.search(name) and array.dtype.kind == "i" and name not in dims:
                moved = np.where(array >= stop, array - len(gone), array)
                changed[name] = np.where((array >= start) & (array < stop), np.minimum(start, left - 1), moved)
            elif name in dims and array.dtype.kind == "f" and dims[name] == array.ndim - 1:
                changed[name] = _normalised_like(axes.arrays[name], array)
        yield _with(axes.contract, call, changed, axis)


def _normalised_like(before: Array, after: Array) -> Array:
    """Return `after` with rows that sum to one where the rows of `before` do."""
    total = after.sum(axis=-1, keepdims=True)
    unit = np.isclose(before.sum(axis=-1, keepdims=True), 1.0, atol=1e-2) & (total > 0) & np.isfinite(total)
    return np.where(unit, after / np.where(unit, total, 1), after)


def _with(contract: Contract, call: OpCall, arrays: Mapping[str, Array], *axes: str) -> OpCall:
    """Return the call with these arrays, and with the scalars that state sizes of `axes`."""
    values = {**call.values, **arrays}
    for scalar in contract.params:
        if not isinstance(scalar, Scalar) or scalar.axis not in axes or call.values.get(scalar.name) is None:
            continue
        dims = _Axes(contract, arrays).dims(scalar.axis)
        for name, dim in dims.items():
            values[scalar.name] = int(arrays[name].shape[dim])
    return replace(call, values=values)


def _shape(contract: Contract, name: str) -> tuple[str | int, ...]:
    tensor = contract.param(name)
    assert isinstance(tensor, Tensor)
    return tensor.shape


def _plainer(call: OpCall) -> Iterator[OpCall]:
    """Yield the call with dense layouts and production dtypes: all at once, then one by one."""
    if any(layout != "dense" for layout in call.layouts.values()):
        yield replace(call, layouts={})
    for name, layout in call.layouts.items():
        if layout != "dense":
            yield replace(call, layouts={n: x for n, x in call.layouts.items() if n != name})
    if len(call.dtypes) > 1:  # one that another tensor shares cannot change alone
        yield replace(call, dtypes={})
    for name in call.dtypes:
        yield replace(call, dtypes={n: x for n, x in call.dtypes.items() if n != name})


def _simpler(axes: _Axes, call: OpCall) -> Iterator[OpCall]:
    """Yield the call with one tensor, then one row, made of simpler numbers."""
    for name, array in axes.arrays.items():
        if array.dtype.kind != "f" or not array.size:
            continue
        for simpler in (_one_hot_rows(array), *(_rounded(array, digits) for digits in (1, 2))):
            if simpler is not None and not np.array_equal(simpler, array, equal_nan=True):
                yield replace(call, values={**call.values, name: simpler})
        for row in range(len(array)) if array.ndim > 1 and len(array) <= 64 else ():
            for change in (_one_hot_rows, lambda each: _rounded(each, 1)):
                yield from _row(call, name, array, row, change)


def _row(call: OpCall, name: str, array: Array, row: int, change: Callable[[Array], Array | None]) -> Iterator[OpCall]:
    simpler = change(array[row : row + 1])
    if simpler is not None and not np.array_equal(simpler, array[row : row + 1], equal_nan=True):
        changed = array.copy()
        changed[row : row + 1] = simpler
        yield replace(call, values={**call.values, name: changed})


def _one_hot_rows(array: Array) -> Array | None:
    """Return rows that sum to one as one-hot rows at their maximum; None for other rows."""
    if array.ndim < 2 or not np.allclose(array.sum(axis=-1), 1.0, atol=1e-2):
        return None
    rows = np.zeros_like(array)
    np.put_along_axis(rows, array.argmax(axis=-1)[..., None], 1.0, axis=-1)
    return rows


def _rounded(array: Array, digits: int) -> Array | None:
    """Return finite values with so many significant digits; None for rows that sum to one and would not any more."""
    finite = np.isfinite(array) & (array != 0)
    with np.errstate(divide="ignore"):
        scale = 10.0 ** (digits - 1 - np.floor(np.log10(np.abs(np.where(finite, array, 1)))))
    rounded = np.where(finite, np.round(array * scale) / scale, array).astype(array.dtype)
    unit = array.ndim > 1 and np.allclose(array.sum(axis=-1), 1.0, atol=1e-2)
    return None if unit and not np.allclose(rounded.sum(axis=-1), 1.0, atol=1e-6) else rounded

"""Kinds of requests, rows and slots of a call: what their inputs have in common, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from verispec.judge._compare import Array
from verispec.judge._request_rows import RowsByRequest, first_axis
from verispec.reference.contracts import Contract, Scalar, Tensor

BELOW, ABOVE = (0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6), (0.9, 0.99, 0.999)
"""Bounds of small numbers, and of numbers near 1."""
Kinds = Iterator[tuple[str, Array]]
"""Words for a kind, to follow "wrong only", and the mask of its members."""


def request_kinds(contract: Contract, inputs: Mapping[str, Any], requests: int) -> Kinds:
    """Yield kinds of requests as masks [requests].

    Args:
        contract: contract of the op.
        inputs: arguments by parameter name; an output is as its memory was before the call.
        requests: number of requests.
    """
    number = np.arange(requests)
    own = list(_own_kinds(contract, inputs, requests))
    yield from own
    yield "in the first request", number == 0
    yield "in the last request", number == requests - 1
    yield "in request 1", number == 1
    yield "in requests of odd numbers", number % 2 == 1
    yield "in requests of even numbers", number % 2 == 0
    for text, mask in own:
        rest = text.removeprefix("in requests ") if text.startswith("in requests ") else text
        yield f"in requests behind one {rest}", np.concatenate([[False], mask[:-1]])[:requests]


def element_kinds(contract: Contract, inputs: Mapping[str, Any], expected: Array, axis: str, rows: int) -> Kinds:
    """Yield kinds of rows by the inputs of an axis, and by the right values, as masks [rows].

    Args:
        contract: contract of the op.
        inputs: arguments by parameter name.
        expected: right output, whose first axis is that of the rows.
        axis: axis of the rows in the contract.
        rows: number of rows.
    """
    scalars = _scalars(contract, inputs)
    tokens = list(_tokens(contract, inputs, expected, axis, rows))
    for tensor in contract.tensors:
        value = inputs.get(tensor.name)
        if not isinstance(value, np.ndarray) or tensor.cumulative or first_axis(tensor) != axis or len(value) < rows:
            continue
        if not tensor.written and value.ndim == 1 and axis != "B":
            yield from _of_values(tensor.name, value[:rows], scalars)
        elif value.ndim == 2 and value.dtype.kind == "f" and not tensor.written:
            yield f"in rows with NaN in {tensor.name}", np.asarray(np.isnan(value[:rows]).any(axis=1))
            for of, ids in tokens:
                inside = (ids >= 0) & (ids < value.shape[1])
                own = np.where(inside, value[np.arange(rows), np.where(inside, ids, 0)], np.nan)
                yield from _of_sizes(f"{tensor.name} of {of}", own)
    if expected.ndim == 1 and expected.dtype.kind == "i":
        yield from _of_values("the right value", expected[:rows], scalars)


def _tokens(
    contract: Contract, inputs: Mapping[str, Any], expected: Array, axis: str, rows: int
) -> Iterator[tuple[str, Array]]:
    """Yield the drafts of all rows, and the right tokens, each with its name."""
    for tensor in contract.tensors:
        value = inputs.get(tensor.name)
        if first_axis(tensor) != axis or not tensor.doc.startswith("draft tokens"):
            continue
        if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind == "i" and len(value) >= rows:
            yield "the draft", value[:rows]
    if expected.ndim == 1 and expected.dtype.kind == "i":
        yield "the right token", expected[:rows]


def place_kinds(contract: Contract, inputs: Mapping[str, Any], units: RowsByRequest, noun: str) -> Kinds:
    """Yield kinds of rows or slots by their place in a request, as masks of all of them.

    Args:
        contract: contract of the op.
        inputs: arguments by parameter name.
        units: rows or slots of each request.
        noun: "row" or "slot".
    """
    places, owner = units.places, units.requests
    counts = units.counts[owner]
    yield f"at the first {noun} of a request", places == 0
    yield f"at the last {noun} of a request", places == counts - 1
    yield f"behind the first {noun} of a request", places > 0
    yield f"before the last {noun} of a request", places < counts - 1
    for tensor in contract.tensors:
        value = inputs.get(tensor.name)
        if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind != "i" or tensor.written:
            continue
        if tensor.cumulative or first_axis(tensor) != "B" or len(value) < len(units.counts):
            continue
        own = value[owner]
        if tensor.within:
            yield f"behind row {tensor.name} of a request", places > own - units.starts[owner]
        else:
            yield f"in the first {tensor.name} {noun}s of a request", places < own
            yield f"in the last {tensor.name} {noun}s of a request", places >= counts - own


def _own_kinds(contract: Contract, inputs: Mapping[str, Any], requests: int) -> Kinds:
    """Yield kinds of requests that their own inputs decide."""
    scalars = _scalars(contract, inputs)
    sums = {t.name: _starts(t, inputs[t.name], requests) for t in contract.tensors if _is_given(t, inputs)}
    counts = {name: np.diff(found) for name, found in sums.items() if found is not None}
    for name, count in counts.items():
        noun = "draft" if "draft" in contract.param(name).doc else "token"
        yield f"in requests without {noun}s", count == 0
        yield f"in requests of one {noun}", count == 1
        yield f"in requests of several {noun}s", count > 1
        yield f"in requests of the most {noun}s", count == count.max(initial=0)
    for tensor in contract.tensors:
        value = inputs.get(tensor.name)
        if not isinstance(value, np.ndarray) or tensor.cumulative or tensor.role == "out":
            continue
        name, axis = tensor.name, first_axis(tensor)
        if axis == "B" and value.ndim == 1 and len(value) >= requests:
            value = value[:requests]
            starts = sums.get(tensor.within)
            if starts is not None:
                yield f"where {name} is the first row of its request", value == starts[:-1]
                yield f"where {name} is the last row of its request", value == starts[1:] - 1
                continue
            yield from _of_values(name, value, scalars)
            for of, count in counts.items() if value.dtype.kind == "i" else ():
                noun = "drafts" if "draft" in contract.param(of).doc else "tokens"
                yield f"where {name} is the number of {noun}", value == count
                yield f"where {name} is the number of {noun} and one", value == count + 1
        elif axis == "B" and value.ndim == 2 and value.dtype.kind == "i" and len(value) >= requests:
            none = value[:requests] == -1
            yield f"in requests with -1 in {name}", none.any(axis=1)
            yield f"in requests with -1 alone in {name}", none.all(axis=1)
            yield f"in requests with -1 before a token in {name}", (none[:, :-1] & ~none[:, 1:]).any(axis=1)
        elif value.ndim == 1 and value.dtype.kind == "i":
            for of, count in counts.items():
                limit = next(t.cumulative for t in contract.tensors if t.name == of)
                if limit and limit.limit == axis and len(value) >= count.sum():
                    owner = np.repeat(np.arange(requests), count)
                    for low, words in ((-1, "-1"), (0, "0")):
                        hit = np.bincount(owner, value[: len(owner)] == low, requests) > 0
                        yield f"in requests with {words} in {name}", hit


def _is_given(tensor: Tensor, inputs: Mapping[str, Any]) -> bool:
    value = inputs.get(tensor.name)
    return bool(tensor.cumulative) and isinstance(value, np.ndarray) and value.ndim == 1


def _starts(tensor: Tensor, sums: Array, requests: int) -> Array | None:
    """Return the first row of each request and the end of the last one, [requests + 1], from cumulative sums."""
    wide = sums.astype(np.int64)
    if "+1" not in str(tensor.shape[0]):
        wide = np.concatenate([[0], wide])
    return wide[: requests + 1] if len(wide) > requests else None


def _scalars(contract: Contract, inputs: Mapping[str, Any]) -> dict[str, int]:
    """Return the integers that values may be compared with, by name."""
    named = (p.name for p in contract.params if isinstance(p, Scalar) and not p.tuning and not p.stride_of)
    given = ((name, inputs.get(name)) for name in named)
    return {name: int(value) for name, value in given if isinstance(value, int) and not isinstance(value, bool)}


def _of_values(name: str, value: Array, scalars: Mapping[str, int]) -> Kinds:
    """Yield kinds of the elements of a vector by their values."""
    if value.dtype.kind == "b":
        yield f"where {name} is true", value
        yield f"where {name} is false", ~value
    elif value.dtype.kind == "f":
        yield f"where {name} is NaN", np.isnan(value)
        for number in (0, 1):
            yield f"where {name} is {number}", value == number
        yield from _of_sizes(name, value)
    elif value.dtype.kind == "i":
        wide = value.astype(np.int64)
        for number in (-1, 0, 1):
            yield f"where {name} is {number}", wide == number
        yield f"where {name} is above 0", wide > 0
        for number in (2, 4, 8, 16, 32, 64):
            yield f"where {name} is {number} or more", wide >= number
        for bits in (7, 8, 15, 16, 31, 32):
            yield f"where {name} is {2**bits:,} or more", wide >= 2**bits
        named = {other: number for other, number in scalars.items() if number not in (-1, 0, 1)}
        for other, number in named.items():
            yield f"where {name} is {other}", wide == number
            yield f"where {name} is {other} - 1", wide == number - 1
            yield f"where {name} is {other} or more", wide >= number
            yield f"where {name} is below {other}", wide < number
        for other, number in named.items():
            if number > 1:
                yield f"where {name} is a multiple of {other}", wide % number == 0
                yield f"where {name} is one below a multiple of {other}", wide % number == number - 1


def _of_sizes(name: str, value: Array) -> Kinds:
    """Yield kinds of floats that are small, or near 1 and above; NaN is of none."""
    for bound in BELOW:
        yield f"where {name} is below {bound:g}", value < bound
    for bound in (*ABOVE, 1):
        yield f"where {name} is above {bound:g}", value > bound

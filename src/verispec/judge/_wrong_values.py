"""Sources of the wrong values of a failing call: other places of the output, or inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from verispec.judge._compare import Array
from verispec.judge._compared import ComparedCall
from verispec.judge._failure import Kind
from verispec.judge._request_rows import RowsByRequest, first_axis, request_rows, slots_of
from verispec.reference.contracts import Contract, Scalar

SEVERAL = 2
"""Different wrong values that hardly have another source in common by chance."""
UNLIKELY = 4.0
"""Odds against chance, in powers of ten, from which on a common remainder is named."""


def sources(compared: ComparedCall) -> list[str]:
    """Return inputs, or other places of the output, that have the wrong values."""
    inputs, tensor = compared.inputs, compared.wrong_output
    rows = request_rows(compared.contract, inputs)
    if tensor is None or compared.failure.kind == Kind.UNWRITTEN:
        return []
    got, expected = compared.outputs[tensor.name], compared.expected[tensor.name]
    if narrowed := list(_narrowed(got, expected)):
        return narrowed
    if first_axis(tensor) == "B" and str(tensor.shape[-1]) == "K+1" and rows.axis and len(rows.counts) == len(got):
        return list(_copied(compared.contract, inputs, rows, got, expected))
    units = rows if rows.axis and first_axis(tensor) == rows.axis else slots_of(compared.contract, inputs, tensor)
    if got.ndim != 1 or units is None or not len(got) >= units.counts.sum() > 0:
        return []
    found = [*_moved(units, got, expected), *_of_neighbours(compared, units), *_off(got, expected)]
    return found or [*_repeats(got, expected), *_of_another_multiple(compared.contract, inputs, got, expected)]


def _narrowed(got: Array, expected: Array) -> Iterator[str]:
    """Yield the number of bits in which all wrong integers are right."""
    if got.dtype.kind != "i" or got.dtype.itemsize < 4:
        return
    away = (got.astype(np.int64) - expected.astype(np.int64))[got != expected]
    bits = next((n for n in (32, 16) if len(away) and not np.any(away % 2**n)), 0)
    if bits:
        yield f"the wrong values are right in their low {bits} bits"


def _moved(rows: RowsByRequest, got: Array, expected: Array) -> Iterator[str]:
    """Yield the order in which the engine wrote the values of each request: another than their own."""
    total = int(rows.counts.sum())
    row, first = np.arange(total), np.repeat(rows.starts, rows.counts)
    last = first + np.repeat(rows.counts, rows.counts) - 1
    for text, order in (("in reverse order", first + last - row), ("one row behind", np.maximum(row - 1, first))):
        if np.any(got[:total] != expected[:total]) and np.array_equal(got[:total], expected[order]):
            yield f"the values of each request are {text}"


def _of_neighbours(compared: ComparedCall, units: RowsByRequest) -> Iterator[str]:
    """Yield the neighbour, or the input of the request, that has the values of all wrong elements."""
    tensor, inputs = compared.wrong_output, compared.inputs
    assert tensor is not None
    got, expected = compared.outputs[tensor.name], compared.expected[tensor.name]
    wrong = np.flatnonzero(got != expected)
    values = got[wrong]
    if len(np.unique(values)) < SEVERAL or got.dtype.kind == "b" or wrong[-1] >= units.counts.sum():
        return
    for text, step in (("before", -1), ("behind", 1)):
        if np.array_equal(values, expected[np.clip(wrong + step, 0, len(got) - 1)]):
            yield f"the wrong values are the right ones of the place {text}"
    request = units.requests[wrong]
    for other in compared.contract.tensors:
        given = inputs.get(other.name)
        if not isinstance(given, np.ndarray) or given.ndim != 1 or other.written or other.cumulative:
            continue
        if first_axis(other) == "B" and np.array_equal(given[request], values):
            yield f"the wrong values are those of {other.name} of their request"


def _off(got: Array, expected: Array) -> Iterator[str]:
    """Yield the number by which all wrong integers are too large or too small."""
    if got.dtype.kind != "i":
        return
    wrong = got != expected
    away = np.unique(got[wrong].astype(np.int64) - expected[wrong].astype(np.int64))
    if len(away) == 1 and len(np.unique(expected[wrong])) >= SEVERAL:
        yield f"each wrong value is too {'large' if away[0] > 0 else 'small'} by {abs(int(away[0])):,}"


def _repeats(got: Array, expected: Array) -> Iterator[str]:
    """Yield that each wrong value is the one before it again, where right values never are."""
    wrong = np.flatnonzero(got != expected)
    if len(wrong) < SEVERAL or not wrong[0] or np.any(expected[wrong] == expected[wrong - 1]):
        return
    if np.array_equal(got[wrong], got[wrong - 1]):
        yield "each wrong value is that of the place before again"


def _of_another_multiple(contract: Contract, inputs: Mapping[str, Any], got: Array, expected: Array) -> Iterator[str]:
    """Yield the number, such as that of the slots of a block, which divides what all wrong integers are off by."""
    wrong = got != expected
    if got.dtype.kind != "i" or np.any(got[wrong] < 0) or np.any(expected[wrong] < 0):
        return
    away = got[wrong].astype(np.int64) - expected[wrong].astype(np.int64)
    numbers = {p.name: inputs.get(p.name) for p in contract.params if isinstance(p, Scalar) and not p.stride_of}
    for name, number in numbers.items():
        if not isinstance(number, int) or number < 2 or len(away) * math.log10(number) < UNLIKELY:
            continue
        if not np.any(away % number):
            yield f"the wrong values are right modulo {name}"
            return


def _copied(
    contract: Contract, inputs: Mapping[str, Any], rows: RowsByRequest, got: Array, expected: Array
) -> Iterator[str]:
    """Yield the inputs whose values, at the place or of the request, are all wrong ones."""
    request, place = np.nonzero(got != expected)
    if not len(request):
        return
    values, are_drafts = got[request, place], np.all(place < rows.counts[request])
    for other in contract.tensors:
        given = inputs.get(other.name)
        if not isinstance(given, np.ndarray) or given.dtype.kind != "i" or other.written or other.cumulative:
            continue
        flat = given.reshape(len(given), -1)[:, 0] if given.size else given
        if first_axis(other) == rows.axis and are_drafts and len(flat) >= rows.counts.sum():
            if np.array_equal(flat[rows.starts[request] + place], values):
                yield f"the wrong values are those of {other.name} at their place"
        elif first_axis(other) == "B" and len(flat) == len(rows.counts) and np.array_equal(flat[request], values):
            yield f"the wrong values are those of {other.name} of their request"

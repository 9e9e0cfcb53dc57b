"""Rows of a call's tensors that belong to each of its requests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from verispec.judge._compare import Array
from verispec.reference.contracts import Contract, Tensor, axis_sizes, parse_axis


class RowsByRequest(NamedTuple):
    """Rows of drafts or tokens by request.

    Attributes:
        starts: first row of each request, [B].
        counts: number of rows of each request, [B].
        axis: axis of these rows in the contract; empty if the op has none.
    """

    starts: Array
    counts: Array
    axis: str

    @property
    def requests(self) -> Array:
        """Number of the request of each row."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def places(self) -> Array:
        """Place of each row in its request."""
        places: Array = np.arange(int(self.counts.sum())) - np.repeat(self.starts, self.counts)
        return places


def request_rows(contract: Contract, inputs: Mapping[str, Any]) -> RowsByRequest:
    """Return the rows of each request of a call, from its cumulative counts."""
    for tensor in contract.tensors:
        sums = inputs.get(tensor.name)
        if tensor.cumulative and tensor.cumulative.limit and isinstance(sums, np.ndarray) and sums.ndim == 1:
            ends = sums[1:] if tensor.shape == ("B+1",) else sums
            starts = sums[:-1] if tensor.shape == ("B+1",) else np.concatenate(([0], sums[:-1]))[: len(sums)]
            return RowsByRequest(starts.astype(np.int64), (ends - starts).astype(np.int64), tensor.cumulative.limit)
    return RowsByRequest(np.zeros(0, np.int64), np.zeros(0, np.int64), "")


def first_axis(tensor: Tensor) -> str:
    """Return the first axis of a tensor, of which a buffer may have more."""
    return str(tensor.shape[0]).removeprefix(">=") if tensor.shape else ""


def requests_of(contract: Contract, inputs: Mapping[str, Any]) -> int:
    """Return the number of requests of a call; 0 for an op without requests."""
    shapes = {t.name: np.shape(inputs[t.name]) for t in contract.tensors if isinstance(inputs.get(t.name), np.ndarray)}
    return len(request_rows(contract, inputs).counts) or axis_sizes(contract, shapes, inputs).get("B", 0)


def slots_of(contract: Contract, inputs: Mapping[str, Any], tensor: Tensor) -> RowsByRequest | None:
    """Return the elements of each request in the first axis of a tensor; None if the axis is not made of them.

    A request has elements of its own in an axis such as ``B*P`` or ``N+B*P``: P, or P more than it has tokens.
    """
    rows = request_rows(contract, inputs)
    shapes = {t.name: np.shape(inputs[t.name]) for t in contract.tensors if isinstance(inputs.get(t.name), np.ndarray)}
    sizes = axis_sizes(contract, shapes, inputs)
    requests = len(rows.counts) or sizes.get("B", 0)
    counts = np.zeros(requests, np.int64)
    for sign, factors in parse_axis(str(tensor.shape[0])).terms if tensor.shape else ():
        others = [f for f in factors if f not in ("B", rows.axis)]
        if len(others) != len(factors) - 1 or any(isinstance(f, str) and f not in sizes for f in others):
            return None
        number = math.prod(f if isinstance(f, int) else sizes[f] for f in others)
        counts += sign * number * (rows.counts if rows.axis and rows.axis in factors else 1)
    return RowsByRequest(np.cumsum(counts) - counts, counts, str(tensor.shape[0])) if np.all(counts >= 0) else None

"""Axis arithmetic: the one evaluator of shape entries and of the sizes that host-side callers compute."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from verispec.reference.contracts._model import Contract, HostSize, Scalar, Tensor


class Axis(NamedTuple):
    """One entry of a shape: the sum of `terms`, each a sign and factors that are axes or numbers."""

    text: str
    at_least: bool
    terms: tuple[tuple[int, tuple[str | int, ...]], ...]

    @property
    def solution(self) -> tuple[str, int] | None:
        """The axis that a dimension of this entry determines, and the constant to subtract; None for other entries."""
        (_, first), *rest = self.terms
        constants = [sign * factors[0] for sign, factors in rest if isinstance(factors[0], int)]
        if self.at_least or len(first) > 1 or not isinstance(first[0], str) or len(constants) < len(rest):
            return None
        return first[0], sum(constants)

    def value(self, sizes: Mapping[str, int]) -> int:
        """Return the entry's value under `sizes`."""
        total = 0
        for sign, factors in self.terms:
            product = sign
            for factor in factors:
                product *= factor if isinstance(factor, int) else sizes[factor]
            total += product
        return total


@cache
def parse(text: str) -> Axis:
    """Return the axis expression `text`, such as ">=N+B*P"."""
    terms = [
        (-1 if sign == "-" else 1, tuple(int(f) if f.isdigit() else f for f in term.split("*")))
        for sign, term in re.findall(r"([+-]?)([^+-]+)", text.removeprefix(">="))
    ]
    return Axis(text, text.startswith(">="), tuple(terms))


def axis_sizes(
    contract: Contract, shapes: Mapping[str, Sequence[int]], scalars: Mapping[str, object]
) -> dict[str, int]:
    """Return the sizes of the contract's axes that the given tensors and scalars determine.

    Args:
        contract: contract of the op.
        shapes: shapes of the known tensors by parameter name.
        scalars: values of the known scalars by parameter name.
    """
    sizes: dict[str, int] = {}
    for param in contract.params:
        if isinstance(param, Scalar):
            value = scalars.get(param.name)
            if isinstance(value, int):
                sizes[param.name] = int(value)
                if param.axis:
                    sizes[param.axis] = int(value)
    for tensor in contract.tensors:
        for axis, size in zip(tensor.shape, shapes.get(tensor.name, ()), strict=False):
            if solution := parse(str(axis)).solution:
                sizes.setdefault(solution[0], size - solution[1])
    return sizes


def shape_of(tensor: Tensor, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of `tensor` under `sizes`; a ``>=`` buffer gets its minimum length.

    Raises:
        KeyError: an axis has no known size; the error names it.
    """
    return tuple(parse(str(axis)).value(sizes) for axis in tensor.shape)


def host_sizes(contract: Contract, bound: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes that a host-side caller of the op computes, under every name that engines give them."""
    return {name: _host_size(contract, size, bound) for size in contract.host_sizes for name in size.names}


def grid(contract: Contract, bound: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the launch grid of the engine's Triton kernel for the arguments `bound`."""
    sizes = {size.names[0]: size for size in contract.host_sizes}
    return tuple(_host_size(contract, sizes[name], bound) for name in contract.grid)


def _host_size(contract: Contract, size: HostSize, bound: Mapping[str, Any]) -> int:
    total = int(bound[size.add] if isinstance(size.add, str) else size.add)
    if size.rows:
        total += len(bound[size.rows])
    if size.longest:
        counts = bound[size.longest].tolist()
        tensor = contract.param(size.longest)
        # Row starts have one entry more than an inclusive cumulative sum: its first interval starts at zero.
        starts = isinstance(tensor, Tensor) and "+1" in str(tensor.shape[0])
        total += max((end - start for start, end in pairwise(counts if starts else [0, *counts])), default=0)
    return -(-total // int(bound.get(size.per) or size.default)) if size.per else total

"""Axis arithmetic: sizes of axes from tensors that are there, shapes of tensors that are not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from verispec.reference.contracts import Contract, Scalar, Tensor

_SINGLE = re.compile(r"([A-Za-z_]\w*)(?:\+(\d+))?")


def axis_sizes(
    contract: Contract, shapes: Mapping[str, Sequence[int]], scalars: Mapping[str, object]
) -> dict[str, int]:
    """What the given tensors and scalars say about the sizes of the contract's axes."""
    sizes: dict[str, int] = {}
    for param in contract.params:
        if isinstance(param, Scalar):
            value = scalars.get(param.name)
            if isinstance(value, int):
                sizes[param.name] = int(value)
                if param.axis:
                    sizes[param.axis] = int(value)
    for tensor in contract.tensors:
        for axis, dim in zip(tensor.shape, shapes.get(tensor.name, ()), strict=False):
            if match := _SINGLE.fullmatch(str(axis)):
                sizes.setdefault(match[1], dim - int(match[2] or 0))
    return sizes


def shape_of(tensor: Tensor, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape that `tensor` has under `sizes`; a ``>=`` buffer is as long as its least size.

    Raises KeyError with the axis that nothing gives a size to.
    """
    return tuple(_evaluate(str(axis).removeprefix(">="), sizes) for axis in tensor.shape)


def _evaluate(expression: str, sizes: Mapping[str, int]) -> int:
    total = 0
    for sign, term in re.findall(r"([+-]?)([^+-]+)", expression):
        product = -1 if sign == "-" else 1
        for factor in term.split("*"):
            product *= int(factor) if factor.isdigit() else sizes[factor]
        total += product
    return total

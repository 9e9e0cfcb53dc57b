"""Axis arithmetic: axis sizes from the tensors at hand, shapes of the tensors that are missing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from verispec.reference.contracts import Contract, Scalar, Tensor

_SINGLE = re.compile(r"([A-Za-z_]\w*)(?:\+(\d+))?")


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
        for axis, dim in zip(tensor.shape, shapes.get(tensor.name, ()), strict=False):
            if match := _SINGLE.fullmatch(str(axis)):
                sizes.setdefault(match[1], dim - int(match[2] or 0))
    return sizes


def shape_of(tensor: Tensor, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of `tensor` under `sizes`; a ``>=`` buffer gets its minimum length.

    Raises:
        KeyError: an axis has no known size; the error names it.
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

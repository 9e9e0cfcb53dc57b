"""Axis arithmetic: sizes of axes from tensors that are there, shapes of tensors that are not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from verispec.reference.contracts import Contract, Scalar, Tensor


def axis_sizes(
    contract: Contract, shapes: Mapping[str, Sequence[int]], scalars: Mapping[str, object]
) -> dict[str, int]:
    """What the given tensors and scalars say about the sizes of the contract's axes."""
    sizes: dict[str, int] = {}
    for param in contract.params:
        if isinstance(param, Scalar):
            value = scalars.get(param.name)
            if param.axis and isinstance(value, int):
                sizes.setdefault(param.axis, value)
            if isinstance(value, int):
                sizes.setdefault(param.name, value)
        elif param.name in shapes:
            for axis, dim in zip(param.shape, shapes[param.name], strict=True):
                match = re.fullmatch(r"([A-Za-z_]\w*)(?:\+(\d+))?", str(axis))
                if match:
                    sizes.setdefault(match[1], dim - int(match[2] or 0))
    return sizes


def shape_of(tensor: Tensor, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape that `tensor` has under `sizes`; a ``>=`` buffer is as long as its least size.

    Raises KeyError with the axis that nothing gives a size to.
    """
    return tuple(_evaluate(str(axis).removeprefix(">="), sizes) for axis in tensor.shape)


def _evaluate(expression: str, sizes: Mapping[str, int]) -> int:
    total = 0
    for term in expression.split("+"):
        product = 1
        for factor in term.split("*"):
            product *= int(factor) if factor.isdigit() else sizes[factor]
        total += product
    return total

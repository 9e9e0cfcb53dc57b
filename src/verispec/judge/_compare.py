"""The oracle's outputs, and comparisons with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from verispec.reference import oracle

Array = np.ndarray[Any, Any]
Compare = Callable[[Array, Array, Mapping[str, Any]], Array]
"""Function of (expected, got, inputs by parameter name), all NumPy, that returns a boolean mask of the wrong elements.
"""


def oracle_outputs(op: str, inputs: Mapping[str, Any], /, **changed: Any) -> dict[str, Array]:
    """Return the oracle's outputs by parameter name.

    Args:
        op: name of the op.
        inputs: arguments by parameter name; the oracle gets copies, and these stay as they are.
        changed: other values of some arguments.
    """
    given = {**inputs, **changed}
    own = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in given.items()}
    outputs: dict[str, Array] = oracle.load(op)(**own)
    return outputs


def exact(expected: Array, got: Array, inputs: Mapping[str, Any]) -> Array:
    """Return a mask of the elements that are not equal; NaN equals NaN.

    Args:
        expected: the oracle's output, of any shape and dtype.
        got: the engine's output, of the same shape.
        inputs: the arguments of the call by parameter name; not used.

    Returns:
        A boolean array of the outputs' shape, True where an element is wrong.
    """
    if np.issubdtype(expected.dtype, np.floating):
        wrong: Array = (expected != got) & ~(np.isnan(expected) & np.isnan(got))
        return wrong
    different: Array = expected != got
    return different

"""A compared call that failed, with all that its explanation needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from verispec.judge._compare import Array, Compare, exact
from verispec.judge._failure import Failure
from verispec.reference.contracts import Contract, Tensor

COPY = "copy of the batch"
"""Detail of a failure in a batch that is copies of a small one: the number of the first wrong copy."""


@dataclass(frozen=True, slots=True)
class ComparedCall:
    """A call that was compared, and failed.

    Attributes:
        contract: contract of the op.
        failure: the failure as the comparison raised it.
        inputs: arguments by parameter name; an output is as its memory was before the call.
        outputs: outputs of the engine, by parameter name.
        expected: outputs of the oracle, by parameter name.
        compare: comparison by output name, instead of `exact`.
        again: makes the same call in a number of threads, 0 for as many as before, and returns True if it is right.
        otherwise: makes the call with other numbers, one call per number, and returns its arguments and its outputs.
        output: the wrong output, where the failure is about memory outside of another tensor.
        repeated: makes the same call once more, and returns its outputs.

    The functions are None for a call that cannot be made alone, or has nothing that could be another number.
    """

    contract: Contract
    failure: Failure
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Array]
    expected: Mapping[str, Array]
    compare: Mapping[str, Compare]
    again: Callable[[int], bool] | None = None
    otherwise: Callable[[int], tuple[Mapping[str, Any], Mapping[str, Array]]] | None = None
    output: str = ""
    repeated: Callable[[], Mapping[str, Array]] | None = None

    def is_given_by(self, outputs: Mapping[str, Array]) -> bool:
        """Return True if the engine's outputs are these.

        A comparison that bounds errors decides for floating-point numbers alone. Those of tokens allow near ties by
        the scores of the right inputs, and may accept every right token whatever a mistake gives instead.
        """
        return all(
            self._is_same(outputs[name], got, self.compare.get(name, exact)) for name, got in self.outputs.items()
        )

    def is_given_where_wrong(self, outputs: Mapping[str, Array]) -> bool:
        """Return True if these outputs have the engine's values in all elements that differ from the oracle's."""
        wrong = {name: exact(self.expected[name], got, self.inputs) for name, got in self.outputs.items()}
        return not any(np.any(exact(outputs[name], self.outputs[name], {})[where]) for name, where in wrong.items())

    def _is_same(self, expected: Array, got: Array, compare: Compare) -> bool:
        if got.dtype.kind != "f":
            return np.array_equal(expected, got)
        return np.array_equal(np.isinf(expected), np.isinf(got)) and not np.any(compare(expected, got, self.inputs))

    @property
    def wrong_output(self) -> Tensor | None:
        """The tensor with the wrong elements; None where the failure is about another value."""
        name = self.output or self.failure.output
        return next((t for t in self.contract.tensors if t.name == name and name in self.outputs), None)

"""Outputs of an op: against the oracle's, and against those of the same call on other stale memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from verispec.judge._compare import Array, Compare, exact
from verispec.judge._failure import EXPLANATION, NOT_WRITTEN, UNTOUCHED, Failure, Kind, Mismatch, described
from verispec.judge._memory import is_mark
from verispec.reference.contracts import Contract, Tensor

EXAMPLES = 5
"""Number of wrong elements that a failure lists; it counts the others."""


def compare_outputs(
    expected: Mapping[str, Array],
    outputs: Mapping[str, Array],
    inputs: Mapping[str, Any],
    compare: Mapping[str, Compare],
) -> None:
    """Compare all outputs of an engine with the oracle's; arguments are those of `compare_output`, by output name.

    Of the first wrong output that was only written too far, or too little, the message tells the first wrong value of
    another one too: it says what the op did instead.
    """
    first: Failure | None = None
    for name, got in outputs.items():
        try:
            compare_output(name, expected[name], got, inputs, compare.get(name, exact))
        except Mismatch as wrong:
            failure = wrong.failure
            if first is None and failure.kind not in (Kind.UNWRITTEN, Kind.OVERWRITTEN):
                raise
            if first is None:
                first = failure
            elif failure.kind is Kind.VALUE and failure.examples:
                message = f"{first.message}; {name}{described(failure.examples[0])}"
                raise Mismatch(replace(first, message=message)) from wrong
    if first is not None:
        raise Mismatch(first)


def compare_output(name: str, expected: Array, got: Array, inputs: Mapping[str, Any], compare: Compare) -> None:
    """Compare an output, whole, with the oracle's.

    Args:
        name: parameter of the output.
        expected: output of the oracle.
        got: output of the engine.
        inputs: arguments by parameter name; an output is as its memory was before the call.
        compare: comparison, which marks wrong elements.

    Raises:
        Mismatch: an element is wrong.
    """
    wrong = compare(expected, got, inputs)
    if not np.any(wrong):
        return
    before = inputs[name]
    same_as_before = exact(before, got, inputs) == 0
    untouched = exact(before, expected, inputs) == 0
    if np.all(same_as_before[wrong]):
        kind = Kind.UNWRITTEN
    elif np.all(untouched[wrong]):
        kind = Kind.OVERWRITTEN
    else:
        kind = Kind.VALUE
    places = list(zip(*np.nonzero(wrong), strict=True))
    # An engine may compute NaN, but not all wrong elements at once as they were.
    mark = is_mark(before) & ((before.dtype.kind != "f") | (kind != Kind.VALUE))
    examples: tuple[dict[str, Any], ...] = tuple(
        {
            "index": [int(i) for i in place],
            "expected": UNTOUCHED if mark[place] and untouched[place] else _plain(expected[place]),
            "got": NOT_WRITTEN if mark[place] and same_as_before[place] else _plain(got[place]),
        }
        for place in places[:EXAMPLES]
    )
    message = f"{name}{described(examples[0])}: {EXPLANATION[kind]}"
    raise Mismatch(
        Failure(kind, message, name, wrong=len(places), total=int(expected.size), examples=examples),
    )


def under_poison(
    contract: Contract, first: Mapping[str, Any], second: Mapping[str, Any], expected: Mapping[str, Array]
) -> dict[str, Array]:
    """Return the oracle's outputs for a second call that differs in its poison alone, without running it.

    An id that no op computes marks the elements that the first call leaves as they are. An op may copy it from an
    input, and NaN and flags may be results, so that such calls have no answer.

    Args:
        contract: contract of the op.
        first: arguments of the first call by parameter name, outputs with their poison.
        second: those of the second call.
        expected: outputs of the oracle for the first call, by parameter name.

    Returns:
        The outputs by parameter name; empty where the oracle has to say.
    """
    found = dict(expected)
    written = [t.name for t in contract.outputs if t.role == "out" and t.name in expected]
    ids = (v for name, v in first.items() if name not in written and isinstance(v, np.ndarray) and v.dtype.kind == "i")
    if any(np.any(is_mark(values)) for values in ids):
        return {}
    for name in written:
        kept = ~exact(first[name], expected[name], first)
        if not np.any(kept):
            continue
        if not np.all(is_mark(first[name][kept])) or first[name].dtype.kind == "f":
            return {}
        found[name] = np.where(kept, second[name], expected[name])
    return found


def require_independence(
    contract: Contract,
    first: tuple[Mapping[str, Any], Mapping[str, Array]],
    second: tuple[Mapping[str, Any], Mapping[str, Array]],
) -> None:
    """Compare the outputs of two calls that differ in the stale memory of their outputs.

    Args:
        contract: contract of the op.
        first: arguments and outputs of a call, by parameter name.
        second: those of the other call.

    Raises:
        Mismatch: both calls wrote an element, and wrote different values.
    """
    for name, got in first[1].items():
        other = second[1][name]
        param = contract.param(name)
        if isinstance(param, Tensor) and param.role == "inout":
            continue
        wrote = (exact(first[0][name], got, {}) != 0) & (exact(second[0][name], other, {}) != 0)
        differs = wrote & (exact(got, other, {}) != 0)
        if np.any(differs):
            place = next(zip(*np.nonzero(differs), strict=True))
            index, one, two = [int(i) for i in place], _plain(got[place]), _plain(other[place])
            message = f"{name}{index} is {one} in one call and {two} in the next: {EXPLANATION[Kind.STALE]}"
            count = int(np.count_nonzero(differs))
            raise Mismatch(Failure(Kind.STALE, message, name, wrong=count, total=int(got.size)))


def require_written(expected: Mapping[str, Array], before: Mapping[str, Any], got: Mapping[str, Array]) -> None:
    """Check that a call wrote to each output that the oracle writes to.

    Args:
        expected: outputs of the oracle by parameter name.
        before: arguments by parameter name; an output is as its memory was before the call.
        got: outputs of the engine by parameter name.

    Raises:
        Mismatch: an output is as it was before the call, and the oracle's is not.
    """
    for name, output in got.items():
        wrong = int(np.count_nonzero(exact(before[name], expected[name], before)))
        if wrong and not np.any(exact(before[name], output, before)):
            message = f"nothing was written to {name}: {EXPLANATION[Kind.UNWRITTEN]}"
            raise Mismatch(Failure(Kind.UNWRITTEN, message, name, wrong=wrong, total=int(output.size)))


def _plain(value: Any) -> Any:
    """Return a JSON value; NaN and infinities become text."""
    item = value.item() if hasattr(value, "item") else value
    return item if not isinstance(item, float) or np.isfinite(item) else str(item)

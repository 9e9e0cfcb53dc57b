"""Calls of a batch that is many copies of a small one: each copy's outputs against the oracle's for the small one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verispec.judge._call import OpCall
from verispec.judge._compare import Compare, exact, oracle_outputs
from verispec.judge._compared import COPY, ComparedCall
from verispec.judge._copies import copies_of, repeated, row_sizes
from verispec.judge._failure import Mismatch
from verispec.judge._op import OpUnderTest
from verispec.judge._output import compare_outputs, under_poison

Masks = dict[str, Any]
Answer = tuple[Mapping[str, Any], Mapping[str, Any], Masks]
"""Arguments of one copy, the oracle's outputs for them, and masks of the elements that it writes."""


def check_repeated(
    op: OpUnderTest,
    values: Mapping[str, Any],
    copies: int,
    *,
    shapes: Mapping[str, Sequence[int]],
    compare: Mapping[str, Compare],
    dtypes: Mapping[str, str] | None = None,
    layouts: Mapping[str, str] | None = None,
) -> None:
    """Call an op with `copies` times the requests of a batch, and compare every output of each copy with the oracle.

    The oracle runs for one copy alone, so that batches past 65,536 requests are cheap.

    Args:
        op: op under test, whose contract is repeatable.
        values: arguments of the small batch, by parameter name.
        copies: number of copies.
        shapes: shapes of outputs of the small batch that the contract's axes do not determine.
        compare: comparison by output name, instead of `exact`.
        dtypes: dtype by parameter name, instead of the production dtype.
        layouts: layout by parameter name, one of `verispec.judge.LAYOUTS`.

    Raises:
        Mismatch: an output of a copy is wrong, a guard or an input changed, or the engine raised.
    """
    large, wide = repeated(op.contract, values, shapes, copies)
    call = OpCall(large, dtypes or {}, layouts or {}, wide, compare)
    if op.instead is not None:
        op.check_outputs(large, dtypes=dtypes, layouts=layouts, shapes=wide, compare=compare)
    answer: Answer | None = None
    try:
        for pattern in (0, 1):
            inputs, outputs = op.call(large, dtypes=dtypes, layouts=layouts, shapes=wide, pattern=pattern)
            op.last = (inputs, outputs)
            answer = _compare_copies(op, values, copies, inputs, outputs, compare, answer)
    except Mismatch:
        op.failing = call
        raise


def _compare_copies(
    op: OpUnderTest,
    values: Mapping[str, Any],
    copies: int,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    compare: Mapping[str, Compare],
    known: Answer | None,
) -> Answer:
    """Compare all copies; `known` is the answer under another poison. Return that under this one."""
    sizes = row_sizes(op.contract, values)
    arrays = {name: value for name, value in inputs.items() if isinstance(value, np.ndarray)}
    first = {name: parts[0] for name, parts in copies_of(op.contract, arrays, sizes, copies, range(1)).items()}
    small = {**inputs, **first}
    expected, written = _answer(op, small, known)
    before, after = (
        copies_of(op.contract, given, sizes, copies, range(copies))
        for given in ({name: arrays[name] for name in outputs}, outputs)
    )
    # Elements that a copy leaves unwritten hold the poison of their own place.
    got = {
        name: np.where(~written[name] & (exact(before[name], after[name], {}) == 0), first[name], after[name])
        for name in outputs
    }
    differs = np.zeros(copies, dtype=bool)
    differs[0] = True
    for value in got.values():
        differs |= _differs_from_first(value)
    seen: set[bytes] = set()
    for copy in np.flatnonzero(differs).tolist():
        key = b"".join(value[copy].tobytes() for value in got.values())
        if key in seen:
            continue
        seen.add(key)
        alone = {name: value[copy] for name, value in got.items()}
        try:
            compare_outputs(expected, alone, small, compare)
        except Mismatch as mismatch:
            mismatch.failure.details[COPY] = copy
            op.compared = ComparedCall(op.contract, mismatch.failure, small, alone, expected, compare)
            raise
    return small, expected, written


def _differs_from_first(copies: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a mask [copies] of the copies whose bytes are not those of the first."""
    if not copies.size:
        return np.zeros(len(copies), dtype=bool)
    flat = np.ascontiguousarray(copies).reshape(len(copies), -1).view(np.uint8)
    differs: np.ndarray[Any, Any] = (flat != flat[0]).any(axis=1)
    return differs


def _answer(op: OpUnderTest, inputs: Mapping[str, Any], known: Answer | None) -> tuple[Mapping[str, Any], Masks]:
    """Return the oracle's outputs, and masks of the elements that it writes: those that no poison changes.

    Args:
        op: op under test.
        inputs: arguments of one copy, by parameter name.
        known: answer for the same copy under other poison, if there is one.
    """
    if known:
        first, expected, written = known
        if derived := under_poison(op.contract, first, inputs, expected):
            return derived, written

    outputs = [t.name for t in op.contract.outputs if t.role == "out" and inputs.get(t.name) is not None]
    other = {name: ~inputs[name] if inputs[name].dtype == bool else inputs[name] + 1 for name in outputs}
    expected, again = (oracle_outputs(op.contract.name, inputs, **changed) for changed in ({}, other))
    return expected, {
        t.name: exact(expected[t.name], again[t.name], {}) == 0 if t.name in outputs else np.array(True)
        for t in op.contract.outputs
        if t.name in expected
    }

"""The calls that the cases of an op's own clauses make, collected without an engine."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from verispec.judge import Compare, OpCall, OpUnderTest, copies_of, repeated, row_sizes
from verispec.reference import contracts, oracle
from verispec.reference.contracts import Contract

LARGEST = 20_000
"""Elements of a call at most: a larger one tests a size of its own, and is expensive to copy."""


class CallKept(BaseException):
    """Ends a case at its first call. No suite may catch it."""


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise CallKept


class CallCollector(OpUnderTest):
    """Keeps the first call of each case, and makes none."""

    def __init__(self, contract: Contract) -> None:
        super().__init__(contract, _refuse)
        self.calls: list[OpCall] = []

    def check_outputs(
        self,
        values: Mapping[str, Any],
        *,
        dtypes: Mapping[str, str] | None = None,
        layouts: Mapping[str, str] | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        compare: Mapping[str, Compare] | None = None,
    ) -> NoReturn:
        self.calls.append(OpCall(values, dtypes or {}, layouts or {}, shapes or {}, compare or {}))
        raise CallKept

    call = check_aliased = check_read_only = check_wide = run = _refuse


def calls_of(op: str, seed: int) -> list[OpCall]:
    """Return the first call of each case of the op's own clauses, without those that are too large or not dense."""
    module = importlib.import_module(f"verispec.suites.sampler.test_{op}")
    collector = CallCollector(contracts.load(op))
    for function in vars(module).values():
        spec = getattr(function, "__verispec_case__", None)
        if spec is None or spec.subjects or function.__module__ != module.__name__:
            continue
        for given in _arguments(function, spec.combinations(), op=collector, seed=seed):
            try:
                function(**given)
            except CallKept:
                continue
    return [call for call in collector.calls if not call.layouts and elements(call.values) <= LARGEST]


def _arguments(
    test: Callable[..., None], combinations: Iterator[dict[str, Any]], **fixtures: Any
) -> Iterator[dict[str, Any]]:
    """Yield the arguments of each case of a test that needs no other fixtures."""
    names = set(inspect.signature(test).parameters)
    for combination in combinations:
        given = {**combination, **fixtures}
        if names <= given.keys():
            yield {name: given[name] for name in names}


def elements(values: Mapping[str, Any]) -> int:
    """Return the number of elements of all arguments."""
    return sum(np.size(value) for value in values.values() if value is not None)


def shared_part(contract: Contract, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values that joined calls share: scalars, sizes of axes without rows, and tables without rows."""
    rows = row_sizes(contract, values)
    tensors = {t.name: t for t in contract.tensors}
    parts: list[Any] = []
    for name, value in sorted(values.items()):
        tensor = tensors.get(name)
        if tensor is None or value is None:
            parts.append((name, value))
        elif not tensor.cumulative:
            sizes = tuple(n for axis, n in zip(tensor.shape, np.shape(value), strict=False) if axis not in rows)
            has_rows = len(sizes) < np.ndim(value)
            parts.append((name, sizes if has_rows else np.asarray(value).tobytes()))
    return tuple(parts)


def is_repeated_alike(contract: Contract, values: Mapping[str, Any]) -> bool:
    """Return True if the oracle's answers for two copies of a batch are twice those for one.

    A place past the batch's own would be one of the next copy, and two requests may write to it in any order.
    """
    sizes = row_sizes(contract, values)
    indexes = [t for t in contract.tensors if t.indexes in sizes and values.get(t.name) is not None]
    if any((np.asarray(values[t.name]) >= sizes[str(t.indexes)]).any() for t in indexes):
        return False
    answers = []
    for copies in (1, 2):
        given = repeated(contract, values, {}, copies)[0]
        answers.append(oracle.load(contract.name)(**{k: np.copy(v) if np.ndim(v) else v for k, v in given.items()}))
    one, two = answers
    parts = copies_of(contract, two, sizes, 2, range(2))
    return all(
        np.array_equal(part, one[name], equal_nan=part.dtype.kind == "f") for name in one for part in parts[name]
    )

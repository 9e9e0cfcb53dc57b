"""Contracts of all ops: normative text and machine-readable signature, one file per op, no heavy imports.

Every module here without a leading underscore defines one ``CONTRACT`` that has the module's name. `load` and `names`
find them, so that adding a file adds an op. Other packages add ops with `register`, called from a suite of their own
or from a function that they name in the entry-point group ``verispec.contracts``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Any

from verispec.reference.contracts._axes import axis_sizes, grid, host_sizes, shape_of
from verispec.reference.contracts._axes import parse as parse_axis
from verispec.reference.contracts._check import bind, check
from verispec.reference.contracts._model import (
    REQUIRED,
    Clause,
    Contract,
    Cumulative,
    HostSize,
    Origin,
    Param,
    Role,
    Scalar,
    Sighting,
    Symbol,
    Tensor,
)

__all__ = [
    "REQUIRED",
    "Clause",
    "Contract",
    "Cumulative",
    "HostSize",
    "Origin",
    "Param",
    "Role",
    "Scalar",
    "Sighting",
    "Symbol",
    "Tensor",
    "axis_sizes",
    "bind",
    "by_clause",
    "check",
    "clause_of",
    "grid",
    "host_sizes",
    "load",
    "names",
    "parse_axis",
    "register",
    "registered_clause",
    "registered_oracle",
    "shape_of",
]

GROUP = "verispec.contracts"
"""Entry-point group of other packages: each entry is a function without parameters that calls `register`."""

_registered: dict[str, tuple[Contract, Callable[..., dict[str, Any]]]] = {}


def register(contract: Contract, oracle: Callable[..., dict[str, Any]]) -> None:
    """Add an op that verispec does not have. Registering the same contract again has no effect.

    Args:
        contract: the op's contract; its name and its clause ids must be new.
        oracle: the executable specification. It takes the contract's parameters by name (NumPy arrays and Python
            scalars) and returns the expected outputs by name, without changing its arguments.

    Raises:
        ValueError: the name or a clause id is in use.
    """
    if contract.name in _registered and _registered[contract.name][0] == contract:
        return
    if contract.name in _built_in() or contract.name in _registered:
        raise ValueError(f"there is already an op {contract.name!r}")
    used = {clause.id for name in names() for clause in load(name).clauses}
    if taken := sorted(used & {clause.id for clause in contract.clauses}):
        raise ValueError(f"{contract.name}: clause ids in use: {', '.join(taken)}")
    _registered[contract.name] = (contract, oracle)


def registered_oracle(name: str) -> Callable[..., dict[str, Any]] | None:
    """Return the oracle that was registered with the op `name`, or None for verispec's own ops."""
    return _registered[name][1] if name in _registered else None


def registered_clause(clause_id: str) -> Clause | None:
    """Return the clause `clause_id` of an op that was registered, or None for verispec's own clauses."""
    clauses = (clause for contract, _ in _registered.values() for clause in contract.clauses)
    return next((clause for clause in clauses if clause.id == clause_id), None)


def names() -> tuple[str, ...]:
    """Return the names of all ops, sorted."""
    _load_entry_points()
    return tuple(sorted((*_built_in(), *_registered)))


def load(name: str) -> Contract:
    """Return the contract of the op `name`.

    Raises:
        KeyError: there is no such op; the error lists the known names.
    """
    if name in _built_in():
        return _load_built_in(name)
    _load_entry_points()
    if name not in _registered:
        raise KeyError(f"no op {name!r}; the ops are {', '.join(names())}")
    return _registered[name][0]


def by_clause(clause_id: str) -> Contract:
    """Return the contract that contains the clause `clause_id`, such as "RRS-3".

    Raises:
        KeyError: no contract contains it.
    """
    for name in (*_built_in(), *names()):
        if any(c.id == clause_id for c in load(name).clauses):
            return load(name)
    raise KeyError(f"no clause {clause_id!r}")


def clause_of(clause_id: str) -> Clause | None:
    """Return the clause `clause_id`; None for one of a suite of its own, which belongs to no contract."""
    try:
        return by_clause(clause_id).clause(clause_id)
    except KeyError:
        return None


@cache
def _built_in() -> tuple[str, ...]:
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")))


@cache
def _load_built_in(name: str) -> Contract:
    contract: Contract = importlib.import_module(f"{__name__}.{name}").CONTRACT
    return contract


@cache
def _load_entry_points() -> None:
    """Let other packages register their ops, once per process."""
    from importlib.metadata import entry_points

    for entry in entry_points(group=GROUP):
        entry.load()()

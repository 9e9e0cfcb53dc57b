"""Contracts of all ops: normative text and machine-readable signature, one file per op, no heavy imports.

Every module here without a leading underscore defines one ``CONTRACT`` that has the module's name. `load` and `names`
find them, so that adding a file adds an op.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from verispec.reference.contracts._model import (
    REQUIRED,
    Clause,
    Contract,
    Cumulative,
    Param,
    Role,
    Scalar,
    Symbol,
    Tensor,
)

__all__ = [
    "REQUIRED",
    "Clause",
    "Contract",
    "Cumulative",
    "Param",
    "Role",
    "Scalar",
    "Symbol",
    "Tensor",
    "by_clause",
    "load",
    "names",
]


@cache
def names() -> tuple[str, ...]:
    """Return the names of all ops, sorted."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")))


@cache
def load(name: str) -> Contract:
    """Return the contract of the op `name`.

    Raises:
        KeyError: there is no such op; the error lists the known names.
    """
    if name not in names():
        raise KeyError(f"no op {name!r}; the ops are {', '.join(names())}")
    contract: Contract = importlib.import_module(f"{__name__}.{name}").CONTRACT
    return contract


def by_clause(clause_id: str) -> Contract:
    """Return the contract that contains the clause `clause_id`, such as "RRS-3".

    Raises:
        KeyError: no contract contains it.
    """
    for name in names():
        if any(c.id == clause_id for c in load(name).clauses):
            return load(name)
    raise KeyError(f"no clause {clause_id!r}")

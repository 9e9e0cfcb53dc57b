"""The normative text and machine contract of every op, one file an op, importing nothing heavy.

Every module here that has no leading underscore defines one ``CONTRACT`` whose name is the
module's; `load` and `names` find them, so that adding a file adds an op.
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
    """The names of all ops, sorted."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")))


@cache
def load(name: str) -> Contract:
    """The contract of the op `name`; KeyError with the known names when there is none."""
    if name not in names():
        raise KeyError(f"no op {name!r}; the ops are {', '.join(names())}")
    contract: Contract = importlib.import_module(f"{__name__}.{name}").CONTRACT
    return contract


def by_clause(clause_id: str) -> Contract:
    """The contract that holds the clause `clause_id`; KeyError when none does."""
    for name in names():
        if any(c.id == clause_id for c in load(name).clauses):
            return load(name)
    raise KeyError(f"no clause {clause_id!r}")

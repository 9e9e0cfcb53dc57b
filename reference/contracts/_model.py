"""What a contract is made of. Pure data: this module imports nothing but the standard library.

A `Contract` says for one op what goes in, what comes out, which rules hold (clauses) and what
engines call it. The signature gate, the Hypothesis strategies, the poison of outputs, the oracle
check, ``verispec explain`` and the docs are all made from this one object.

Shapes are written in axis names. An entry is an integer, an axis (``"B"``), an axis plus a constant
(``"K+1"``), a product of axes (``"B*P"``), or one of these behind ``">="`` for a buffer that may be
longer than what is used. A lower-case name is a scalar parameter used as a size.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

REQUIRED: Final = object()
"""The default of a parameter that has none."""

INTS: Final = ("int32", "int64")
FLOATS: Final = ("float32", "float64")
PROBS: Final = ("float32", "bfloat16", "float16")

_DTYPES: Final = {"bool", "int32", "int64", "float32", "float64", "bfloat16", "float16", "uint8"}
_AXIS: Final = re.compile(r"(>=)?[A-Za-z_]\w*([+*][A-Za-z_0-9]+)*")
_CLAUSE_ID: Final = re.compile(r"[A-Z][A-Z0-9]{1,4}-\d+")


class Role(StrEnum):
    """How an op uses a tensor."""

    IN = "in"
    OUT = "out"
    INOUT = "inout"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor parameter.

    `dtypes` is what the op must accept, `production` what the engines' own callers really pass;
    `optional` means that None is allowed.
    """

    name: str
    shape: tuple[str | int, ...]
    dtypes: tuple[str, ...]
    doc: str
    role: Role = Role.IN
    production: str = ""
    optional: bool = False
    default: Any = REQUIRED

    def __post_init__(self) -> None:
        unknown = set(self.dtypes) - _DTYPES
        if unknown or not self.dtypes:
            raise ValueError(f"{self.name}: unknown dtypes {sorted(unknown)}, known are {sorted(_DTYPES)}")
        if self.production and self.production not in self.dtypes:
            raise ValueError(f"{self.name}: production dtype {self.production} is not among {self.dtypes}")
        for axis in self.shape:
            if isinstance(axis, str) and not _AXIS.fullmatch(axis):
                raise ValueError(f"{self.name}: {axis!r} is not an axis expression")

    @property
    def written(self) -> bool:
        return self.role is not Role.IN


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar parameter. `axis` ties its value to a size; `flag` marks a compile-time parameter.

    `tuning` marks a parameter that may change speed but never a result (a block size).
    """

    name: str
    type: type
    doc: str
    axis: str = ""
    flag: bool = False
    tuning: bool = False
    minimum: float | None = None
    default: Any = REQUIRED


Param = Tensor | Scalar


@dataclass(frozen=True, slots=True)
class Clause:
    """One rule: `text` is one sentence of norm, `source` where it comes from (paper and equation, or symbol and version)."""

    id: str
    text: str
    source: str

    def __post_init__(self) -> None:
        if not _CLAUSE_ID.fullmatch(self.id):
            raise ValueError(f"{self.id!r} is not a clause id such as 'EXP-2'")
        if not self.text.endswith("."):
            raise ValueError(f"{self.id}: a clause is a sentence and ends with a full stop")


@dataclass(frozen=True, slots=True)
class Symbol:
    """What an engine calls the op: a dotted name, and the versions that have it under that name.

    `rename` maps our parameter names to theirs where they differ; `since` and `until` are inclusive
    and exclusive.
    """

    engine: str
    name: str
    since: str = ""
    until: str = ""
    platform: str = ""
    rename: dict[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Contract:
    """One op: its name (the stem of all its files), family, axes, parameters in call order and clauses."""

    name: str
    family: str
    summary: str
    axes: dict[str, str] = field(hash=False)
    params: tuple[Param, ...]
    clauses: tuple[Clause, ...]
    symbols: tuple[Symbol, ...] = ()
    law: str = ""

    def __post_init__(self) -> None:
        names = [p.name for p in self.params]
        if len(names) != len(set(names)):
            raise ValueError(f"{self.name}: a parameter is listed twice")
        ids = [c.id for c in self.clauses]
        if len(ids) != len(set(ids)) or len({i.partition("-")[0] for i in ids}) > 1:
            raise ValueError(f"{self.name}: clause ids must be unique and share one prefix, got {ids}")
        scalars = {p.name for p in self.params if isinstance(p, Scalar)}
        for tensor in self.tensors:
            for axis in tensor.shape:
                for word in re.findall(r"[A-Za-z_]\w*", str(axis)):
                    if word not in self.axes and word not in scalars:
                        raise ValueError(f"{self.name}: {tensor.name} uses the unknown axis {word!r}")
        for scalar in self.params:
            if isinstance(scalar, Scalar) and scalar.axis and scalar.axis not in self.axes:
                raise ValueError(f"{self.name}: {scalar.name} is tied to the unknown axis {scalar.axis!r}")

    @property
    def prefix(self) -> str:
        """The letters before the dash of every clause id, e.g. ``EXP``."""
        return self.clauses[0].id.partition("-")[0]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(p for p in self.params if isinstance(p, Tensor))

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The tensors that the op writes, in-out ones included."""
        return tuple(t for t in self.tensors if t.written)

    def param(self, name: str) -> Param:
        for p in self.params:
            if p.name == name:
                return p
        raise KeyError(f"{self.name} has no parameter {name!r}; it has {[p.name for p in self.params]}")

    def clause(self, clause_id: str) -> Clause:
        for c in self.clauses:
            if c.id == clause_id:
                return c
        raise KeyError(f"{self.name} has no clause {clause_id!r}; it has {[c.id for c in self.clauses]}")

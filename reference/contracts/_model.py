"""What a contract is made of. Pure data: this module imports nothing but the standard library.

A `Contract` says for one op what goes in, what comes out, which rules hold (clauses) and what
engines call it. The signature gate, the Hypothesis strategies, the poison of outputs, the oracle
check, ``verispec explain`` and the docs are all made from this one object.

Shapes are written in axis names. An entry is an integer, an axis (``"B"``), an axis plus a constant
(``"K+1"``), a sum of products of axes (``"N+B*P"``), or one of these behind ``">="`` for a buffer that
may be longer than what is used. A lower-case name is a scalar parameter used as a size. A last axis
of 1 may be missing: engines pass one bonus token a request as ``[B, 1]`` and as ``[B]``.
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
_AXIS: Final = re.compile(r"(>=)?[A-Za-z_]\w*([-+*][A-Za-z_0-9]+)*")
_CLAUSE_ID: Final = re.compile(r"[A-Z][A-Z0-9]{1,4}-\d+")


class Role(StrEnum):
    """How an op uses a tensor."""

    IN = "in"
    OUT = "out"
    INOUT = "inout"


@dataclass(frozen=True, slots=True)
class Cumulative:
    """The values of a tensor never fall and start at zero or above: an inclusive cumulative sum, or row starts.

    `limit` is an axis that no value may exceed, `step` an axis or scalar that no increment may exceed;
    empty where the op does not index by them.
    """

    limit: str = ""
    step: str = ""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor parameter.

    `dtypes` is what the op must accept, `production` what the engines' own callers pass (`also` what
    other callers of theirs pass). `optional` means that None is allowed; with `required_if`, not
    while that flag holds (``"SYNTHETIC_MODE"``, ``"not NO_DRAFT_PROBS"``). `like` names a tensor of
    the same dtype, `may_alias` one that may be the very same memory, and `within` one of row starts
    between which the values lie: starts[b] <= value[b] < starts[b + 1]. `column` accepts a trailing
    axis of 1 beside the shape itself ([N, 1] for [N]): a kernel that takes pointers does not see it.
    """

    name: str
    shape: tuple[str | int, ...]
    dtypes: tuple[str, ...]
    doc: str
    role: Role = Role.IN
    production: str = ""
    also: tuple[str, ...] = ()
    optional: bool = False
    required_if: str = ""
    default: Any = REQUIRED
    like: str = ""
    may_alias: str = ""
    cumulative: Cumulative | None = None
    within: str = ""
    column: bool = False

    def __post_init__(self) -> None:
        unknown = set(self.dtypes) - _DTYPES
        if unknown or not self.dtypes:
            raise ValueError(f"{self.name}: unknown dtypes {sorted(unknown)}, known are {sorted(_DTYPES)}")
        for dtype in filter(None, (self.production, *self.also)):
            if dtype not in self.dtypes:
                raise ValueError(f"{self.name}: production dtype {dtype} is not among {self.dtypes}")
        if self.required_if and not self.optional:
            raise ValueError(f"{self.name}: required_if is for optional tensors")
        if self.column and (len(self.shape) != 1 or self.cumulative or self.within):
            raise ValueError(f"{self.name}: column is for tensors of one axis that hold no counts")
        for axis in self.shape:
            if isinstance(axis, str) and not _AXIS.fullmatch(axis):
                raise ValueError(f"{self.name}: {axis!r} is not an axis expression")

    @property
    def written(self) -> bool:
        return self.role is not Role.IN


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar parameter. `axis` ties its value to a size; `flag` marks a compile-time parameter.

    `tuning` marks a parameter that may change speed but never a result (a block size). `minimum` is a
    number or an axis. `like` names a tensor in whose dtype the value must be exact if that is an
    integer type; `stride_of` a tensor whose first stride, in elements, the value is. `optional`
    means that None is allowed.
    """

    name: str
    type: type
    doc: str
    axis: str = ""
    flag: bool = False
    tuning: bool = False
    minimum: float | str | None = None
    optional: bool = False
    like: str = ""
    stride_of: str = ""
    default: Any = REQUIRED


Param = Tensor | Scalar


@dataclass(frozen=True, slots=True)
class Clause:
    """One rule: `text` is one sentence of norm, `source` a paper and equation, or an engine's symbol and version.

    `unreachable` says why no caller of a real engine gets there, where that is so: breaking the clause
    is then a note and no error. `forbids` is the kind of failure that the clause speaks of, where it
    speaks of one (``"unwritten"``): such a failure is reported under this clause, whichever case shows it.
    """

    id: str
    text: str
    source: str
    unreachable: str = ""
    forbids: str = ""

    def __post_init__(self) -> None:
        if not _CLAUSE_ID.fullmatch(self.id):
            raise ValueError(f"{self.id!r} is not a clause id such as 'EXP-2'")
        if not self.text.endswith("."):
            raise ValueError(f"{self.id}: a clause is a sentence and ends with a full stop")


@dataclass(frozen=True, slots=True)
class Symbol:
    """What an engine calls the op: a dotted name, and the versions that have it under that name.

    `rename` maps our parameter names to theirs where they differ; `since` and `until` are inclusive
    and exclusive, and `since` is at least the oldest release that was read.
    """

    engine: str
    name: str
    since: str = ""
    until: str = ""
    platform: str = ""
    rename: dict[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Contract:
    """One op: its name (the stem of all its files), family, axes, parameters in call order and clauses.

    `returns` describes the result of an op that has one; kernels have none, they write their outputs
    in place.
    """

    name: str
    family: str
    summary: str
    axes: dict[str, str] = field(hash=False)
    params: tuple[Param, ...]
    clauses: tuple[Clause, ...]
    symbols: tuple[Symbol, ...] = ()
    law: str = ""
    returns: str = ""

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
            if tensor.required_if and tensor.required_if.removeprefix("not ") not in scalars:
                raise ValueError(f"{self.name}: {tensor.name} depends on the unknown flag {tensor.required_if!r}")
        for scalar in self.params:
            if isinstance(scalar, Scalar) and scalar.axis and scalar.axis not in self.axes:
                raise ValueError(f"{self.name}: {scalar.name} is tied to the unknown axis {scalar.axis!r}")
        for p in self.params:
            others = (p.like, p.may_alias, p.within) if isinstance(p, Tensor) else (p.like, p.stride_of)
            for other in filter(None, others):
                if not any(other == t.name for t in self.tensors):
                    raise ValueError(f"{self.name}: {p.name} refers to the unknown tensor {other!r}")
        if not self.outputs and not self.returns:
            raise ValueError(f"{self.name}: an op writes a tensor or returns something")

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

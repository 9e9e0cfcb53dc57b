"""The data model of a contract. This module imports nothing but the standard library.

A `Contract` states an op's inputs, outputs and rules (clauses), and its names in real engines. The static checker,
Hypothesis strategies, output poison, oracle checks, ``verispec explain`` and the docs all derive from it.

Shapes consist of axis names. An entry is an integer, an axis (``"B"``), an axis plus a constant (``"K+1"``), or a sum
of products of axes (``"N+B*P"``). A leading ``">="`` marks a buffer that may be longer. A lower-case name is a scalar
parameter used as a size. A last axis of 1 may be missing, since engines pass one bonus token per request as ``[B, 1]``
and as ``[B]``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

REQUIRED: Final = object()
"""Default of a parameter that callers must pass."""

INTS: Final = ("int32", "int64")
FLOATS: Final = ("float32", "float64")
PROBS: Final = ("float32", "bfloat16", "float16")

_DTYPES: Final = {"bool", "int32", "int64", "float32", "float64", "bfloat16", "float16", "uint8"}
_AXIS: Final = re.compile(r"(>=)?[A-Za-z_]\w*([-+*][A-Za-z_0-9]+)*")
_CLAUSE_ID: Final = re.compile(r"[A-Z][A-Z0-9]{1,4}-\d+")


class Role(StrEnum):
    """Direction of a tensor parameter."""

    IN = "in"
    OUT = "out"
    INOUT = "inout"


@dataclass(frozen=True, slots=True)
class Cumulative:
    """A tensor of inclusive cumulative sums or row starts: its values never decrease and start at zero or above.

    Attributes:
        limit: axis that no value may exceed, or empty if the op does not index by the values.
        step: axis or scalar that no increment may exceed, or empty likewise.
    """

    limit: str = ""
    step: str = ""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor parameter.

    Attributes:
        name: parameter name.
        shape: integers and axis expressions.
        dtypes: dtypes that the op must accept.
        doc: meaning and unit.
        role: input, output or both.
        production: dtype that the engines' main caller passes.
        also: dtypes that their other callers pass.
        optional: True if None is allowed.
        required_if: flag that forbids None, such as "SYNTHETIC_MODE" or "not NO_DRAFT_PROBS".
        required_with: optional tensor that forbids None where it is passed.
        default: default value, or `REQUIRED`.
        like: tensor of the same dtype.
        may_alias: tensor that may be the same memory.
        cumulative: set for cumulative sums and row starts.
        within: tensor of row starts around the values: starts[b] <= value[b] < starts[b + 1].
        indexes: axis that the values index; negative values index nothing.
        minimum: lowest value that callers pass. No kernel checks it, and no case goes below it. Below it results are
            unspecified, but no kernel writes outside of its tensors.
        column: True accepts a trailing axis of 1 too ([N, 1] for [N]), which a kernel that takes pointers does not see.
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
    required_with: str = ""
    default: Any = REQUIRED
    like: str = ""
    may_alias: str = ""
    cumulative: Cumulative | None = None
    within: str = ""
    indexes: str = ""
    minimum: float | None = None
    column: bool = False

    def __post_init__(self) -> None:
        unknown = set(self.dtypes) - _DTYPES
        if unknown or not self.dtypes:
            raise ValueError(f"{self.name}: unknown dtypes {sorted(unknown)}, known are {sorted(_DTYPES)}")
        for dtype in filter(None, (self.production, *self.also)):
            if dtype not in self.dtypes:
                raise ValueError(f"{self.name}: production dtype {dtype} is not among {self.dtypes}")
        for condition in ("required_if", "required_with"):
            if getattr(self, condition) and not self.optional:
                raise ValueError(f"{self.name}: {condition} is for optional tensors")
        if self.column and (len(self.shape) != 1 or self.cumulative or self.within):
            raise ValueError(f"{self.name}: column is for tensors of one axis that hold no counts")
        for axis in self.shape:
            if isinstance(axis, str) and not _AXIS.fullmatch(axis):
                raise ValueError(f"{self.name}: {axis!r} is not an axis expression")

    @property
    def written(self) -> bool:
        """True if the op writes the tensor."""
        return self.role is not Role.IN


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar parameter.

    Attributes:
        name: parameter name.
        type: Python type.
        doc: meaning and unit.
        axis: axis whose size the value is.
        flag: True for a compile-time parameter.
        tuning: True if the value changes speed but never a result, such as a block size.
        minimum: minimum value, a number or an axis.
        equals: axis expression that the value must equal, or empty.
        optional: True if None is allowed.
        like: tensor in whose dtype the value must be exact, if that is an integer type.
        stride_of: tensor whose first stride, in elements, the value is.
        upper_bound: True if any larger value means the same.
        default: default value, or `REQUIRED`.
    """

    name: str
    type: type
    doc: str
    axis: str = ""
    flag: bool = False
    tuning: bool = False
    minimum: float | str | None = None
    equals: str = ""
    optional: bool = False
    like: str = ""
    stride_of: str = ""
    upper_bound: bool = False
    default: Any = REQUIRED


Param = Tensor | Scalar


@dataclass(frozen=True, slots=True)
class HostSize:
    """A size that the host-side caller of a kernel computes: ceil((rows + longest + add) / per).

    Attributes:
        names: names that engines give it; the first one is ours.
        rows: tensor whose number of rows counts, or empty.
        longest: tensor of cumulative counts whose largest increment counts, or empty.
        add: number or scalar parameter to add.
        per: scalar parameter to divide by, or empty.
        default: divisor if the call omits `per`.
    """

    names: tuple[str, ...]
    rows: str = ""
    longest: str = ""
    add: int | str = 0
    per: str = ""
    default: int = 1


@dataclass(frozen=True, slots=True)
class Origin:
    """Line of an engine that makes the calls in which a broken clause reaches a user, as read in its source.

    Attributes:
        function: dotted name of the engine's function.
        line: part of the line, which no earlier line of the function has.
    """

    function: str
    line: str


@dataclass(frozen=True, slots=True)
class Sighting:
    """A broken clause that was seen in an engine's own output, without verispec.

    Attributes:
        engine: name of the engine.
        version: version of the engine.
        text: observation in the engine's output.
        script: script under docs/verdicts/proofs that shows it, with its arguments.
    """

    engine: str
    version: str
    text: str
    script: str


@dataclass(frozen=True, slots=True)
class Clause:
    """One requirement of an op.

    Attributes:
        id: prefix of the op and a number, such as "EXP-2".
        text: the requirement, one sentence.
        source: paper and equation, or an engine's symbol and version.
        unreachable: reason why no caller of a real engine gets here. If set, breaking the clause is a note.
        rare: estimate of how rarely a caller gets here. If set, breaking the clause is a note.
        harmless: reason why breaking the clause does no harm where no case says how production reaches it.
        forbids: kind of failure that the clause forbids, such as "unwritten". Reports show this clause for such a
            failure in any case.
        fault: the fault in a few words, if clauses of several ops forbid the same one. Reports count it over the ops.
        outputs: outputs whose values the clause decides. Reports show this clause where they are wrong in most cases.
        places: words of a failure's remark for the places that the clause governs. Reports show it where most cases
            have them; elsewhere the clause decides the first of its outputs alone.
        mistakes: listed mistakes that break this clause before any other. Reports show it where most cases name one.
        effect: consequence for a user if the clause is broken; empty for the op's own `Contract.effect`.
        keeps_text: True if drafts alone are worse, or counted wrongly, where the clause is broken: each is verified.
        is_relation: True if the clause asks for the same tokens beside other requests. What breaks another clause may
            break it too, and that one says what is wrong.
        is_premise: True if other clauses hold for nothing where this one does not: silence about it is no good result.
        origin: line of an engine that makes the calls in which a broken clause reaches a user, where somebody read it.
        sightings: engines in whose own output the broken clause was seen.
        upstream: state of the fault in an engine's own tracker, by engine, where it is known there.
    """

    id: str
    text: str
    source: str
    unreachable: str = ""
    rare: str = ""
    harmless: str = ""
    forbids: str = ""
    fault: str = ""
    outputs: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    mistakes: tuple[str, ...] = ()
    effect: str = ""
    keeps_text: bool = False
    is_relation: bool = False
    is_premise: bool = False
    origin: Origin | None = None
    sightings: tuple[Sighting, ...] = ()
    upstream: dict[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not _CLAUSE_ID.fullmatch(self.id):
            raise ValueError(f"{self.id!r} is not a clause id such as 'EXP-2'")
        if not self.text.endswith("."):
            raise ValueError(f"{self.id}: a clause is a sentence and ends with a full stop")


@dataclass(frozen=True, slots=True)
class Symbol:
    """Name of the op in an engine.

    Attributes:
        engine: name of the engine.
        name: dotted name of the function or kernel.
        since: first version with this name, at the earliest the oldest release that was read.
        until: first version without it, or empty.
        platform: the only platform that has it, or empty.
        rename: engine parameter by contract parameter, where they differ.
    """

    engine: str
    name: str
    since: str = ""
    until: str = ""
    platform: str = ""
    rename: dict[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Contract:
    """One op.

    Attributes:
        name: op name, also the name of all its files.
        family: group of ops that share their tensors.
        summary: one sentence.
        axes: meaning of each axis.
        params: parameters in call order.
        clauses: requirements.
        symbols: names in real engines.
        law: exact distribution of a random op.
        returns: description of the return value. Kernels have none: they write their outputs in place.
        host_sizes: sizes that callers of the engine's kernel compute.
        grid: launch grid of the engine's Triton kernel, as names of host sizes. Empty if the op is a function, or
            several kernels, in engines.
        caller: dotted name of the engine's function that calls the op, as read in its source. Empty if none was read.
        effect: consequence for a user if the op gives wrong values. Empty if its cases say so themselves.
        keeps_text: True for an op of drafters, whose wrong values make drafts worse and leave the text as it is.
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
    host_sizes: tuple[HostSize, ...] = ()
    grid: tuple[str, ...] = ()
    caller: str = ""
    effect: str = ""
    keeps_text: bool = False

    def __post_init__(self) -> None:
        names = [p.name for p in self.params]
        if len(names) != len(set(names)):
            raise ValueError(f"{self.name}: two parameters have the same name")
        ids = [c.id for c in self.clauses]
        if len(ids) != len(set(ids)) or len({i.partition("-")[0] for i in ids}) > 1:
            raise ValueError(f"{self.name}: clause ids must be unique and share one prefix, got {ids}")
        decided = {output for clause in self.clauses for output in clause.outputs}
        if unknown := decided - {tensor.name for tensor in self.outputs}:
            raise ValueError(f"{self.name}: clauses decide the unknown outputs {sorted(unknown)}")
        scalars = {p.name for p in self.params if isinstance(p, Scalar)}
        for tensor in self.tensors:
            for axis in tensor.shape:
                for word in re.findall(r"[A-Za-z_]\w*", str(axis)):
                    if word not in self.axes and word not in scalars:
                        raise ValueError(f"{self.name}: {tensor.name} uses the unknown axis {word!r}")
            if tensor.indexes and tensor.indexes not in {*self.axes, *(axis for t in self.tensors for axis in t.shape)}:
                raise ValueError(f"{self.name}: {tensor.name} indexes the unknown axis {tensor.indexes!r}")
            if tensor.required_if and tensor.required_if.removeprefix("not ") not in scalars:
                raise ValueError(f"{self.name}: {tensor.name} depends on the unknown flag {tensor.required_if!r}")
        for scalar in self.params:
            if isinstance(scalar, Scalar) and scalar.axis and scalar.axis not in self.axes:
                raise ValueError(f"{self.name}: {scalar.name} is tied to the unknown axis {scalar.axis!r}")
            words = re.findall(r"[A-Za-z_]\w*", scalar.equals) if isinstance(scalar, Scalar) else []
            if unknown := {*words} - {*self.axes} - scalars:
                raise ValueError(f"{self.name}: {scalar.name} equals an expression with the unknown {sorted(unknown)}")
        for p in self.params:
            others = (
                (p.like, p.may_alias, p.within, p.required_with) if isinstance(p, Tensor) else (p.like, p.stride_of)
            )
            for other in filter(None, others):
                if not any(other == t.name for t in self.tensors):
                    raise ValueError(f"{self.name}: {p.name} refers to the unknown tensor {other!r}")
        for size in self.host_sizes:
            parts = (size.rows, size.longest, size.per, size.add if isinstance(size.add, str) else "")
            if unknown := {part for part in parts if part and part not in names}:
                raise ValueError(f"{self.name}: the host size {size.names[0]} refers to unknown {sorted(unknown)}")
        if unknown := set(self.grid) - {size.names[0] for size in self.host_sizes}:
            raise ValueError(f"{self.name}: the grid refers to unknown host sizes {sorted(unknown)}")
        if not self.outputs and not self.returns:
            raise ValueError(f"{self.name}: an op writes a tensor or returns something; this one does neither")

    @property
    def prefix(self) -> str:
        """The letters before the dash of every clause id, e.g. ``EXP``."""
        return self.clauses[0].id.partition("-")[0]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensor parameters, in call order."""
        return tuple(p for p in self.params if isinstance(p, Tensor))

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The tensors that the op writes, in-out ones included."""
        return tuple(t for t in self.tensors if t.written)

    def param(self, name: str) -> Param:
        """Return the parameter `name`.

        Raises:
            KeyError: there is no such parameter.
        """
        for p in self.params:
            if p.name == name:
                return p
        raise KeyError(f"{self.name} has no parameter {name!r}; it has {[p.name for p in self.params]}")

    def clause(self, clause_id: str) -> Clause:
        """Return the clause `clause_id`.

        Raises:
            KeyError: there is no such clause.
        """
        for c in self.clauses:
            if c.id == clause_id:
                return c
        raise KeyError(f"{self.name} has no clause {clause_id!r}; it has {[c.id for c in self.clauses]}")

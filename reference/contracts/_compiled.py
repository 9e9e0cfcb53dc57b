"""Precompile contracts, so that per-call checks need no lookups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from verispec.reference.contracts._axes import Axis, parse
from verispec.reference.contracts._model import REQUIRED, Contract, Scalar, Tensor

MISSING: Final = object()


class Layout(NamedTuple):
    """Result of a passed check, without tensor values and addresses.

    Attributes:
        scalars: values as plain Python numbers.
        sizes: sizes of the axes.
        device: device of all tensors.
        reach: name, first byte and end of every tensor that is not empty, relative to its first element.
    """

    scalars: dict[str, Any]
    sizes: dict[str, int]
    device: str
    reach: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class CompiledContract:
    """A contract with the lookups of a check done in advance.

    Attributes:
        names: names of all parameters.
        defaults: defaults by name; `MISSING` for tuning parameters.
        related: scalars that depend on a tensor or on another scalar.
        aliases: pairs of tensors that may share memory.
        counted: tensors whose values the check reads.
        solved: dimensions that are one axis and a constant: axis, tensor, dimension, constant.
        bounded: all other dimensions: tensor, dimension, expression.
        columns: tensors that may have a trailing axis of 1.
        known: layouts that passed, by call signature.
    """

    contract: Contract
    names: tuple[str, ...]
    defaults: dict[str, Any]
    scalars: tuple[Scalar, ...]
    related: tuple[Scalar, ...]
    tensors: tuple[Tensor, ...]
    written: frozenset[str]
    aliases: frozenset[tuple[str, str]]
    counted: tuple[Tensor, ...]
    axes: dict[str, tuple[Axis, ...]]
    solved: tuple[tuple[str, str, int, int], ...]
    bounded: tuple[tuple[str, int, Axis], ...]
    like: tuple[Tensor, ...]
    columns: tuple[str, ...]
    known: dict[tuple[Any, ...], Layout] = field(default_factory=dict)


_plans: dict[int, CompiledContract] = {}


def plan_of(contract: Contract) -> CompiledContract:
    """Return the compiled form of `contract`, built at the first call."""
    # Look up by identity, since hashing a contract would cost more than the check. The entry keeps its contract alive.
    plan = _plans.get(id(contract))
    if plan is None:
        plan = _plans[id(contract)] = _compile(contract)
    return plan


def _compile(contract: Contract) -> CompiledContract:
    scalars = tuple(p for p in contract.params if isinstance(p, Scalar))
    axes = {t.name: tuple(parse(str(axis)) for axis in t.shape) for t in contract.tensors}
    solved: list[tuple[str, str, int, int]] = []
    bounded: list[tuple[str, int, Axis]] = []
    # Inputs come first, so that an error blames the output if the inputs agree.
    for tensor in sorted(contract.tensors, key=lambda t: t.written):
        for dimension, axis in enumerate(axes[tensor.name]):
            if solution := axis.solution:
                name, constant = solution
                solved.append((name, tensor.name, dimension, constant))
            else:
                bounded.append((tensor.name, dimension, axis))
    return CompiledContract(
        contract=contract,
        names=tuple(p.name for p in contract.params),
        defaults={
            p.name: MISSING if isinstance(p, Scalar) and p.tuning and p.default is REQUIRED else p.default
            for p in contract.params
        },
        scalars=scalars,
        related=tuple(s for s in scalars if s.stride_of or s.like or s.equals or isinstance(s.minimum, str)),
        tensors=contract.tensors,
        written=frozenset(t.name for t in contract.outputs),
        aliases=frozenset((t.name, t.may_alias) for t in contract.tensors if t.may_alias),
        counted=tuple(t for t in contract.tensors if t.cumulative or t.within),
        axes=axes,
        solved=tuple(solved),
        bounded=tuple(bounded),
        like=tuple(t for t in contract.tensors if t.like),
        columns=tuple(t.name for t in contract.tensors if t.column),
    )

"""One call of an engine's op: guarded and poisoned tensors, and the memory that it may not write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from verispec.engines import OpFunction
from verispec.judge._compare import Array, Compare
from verispec.judge._failure import Failure, Kind, Mismatch, call_engine
from verispec.judge._memory import GuardedTensor, to_numpy
from verispec.reference.contracts import REQUIRED, Contract, Scalar, Tensor, axis_sizes, shape_of

TILE = 1024
"""Value of required tuning parameters that a case does not set; a power of two."""


@dataclass(frozen=True, slots=True)
class OpCall:
    """One call of an op as a case makes it.

    Attributes:
        values: arguments by parameter name.
        dtypes: dtypes by parameter name, where they are not the production dtype.
        layouts: layouts by parameter name, where they are not dense.
        shapes: shapes of outputs that the contract's axes do not determine.
        compare: comparisons by output name, instead of `exact`.
    """

    values: Mapping[str, Any]
    dtypes: Mapping[str, str] = field(default_factory=dict)
    layouts: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    compare: Mapping[str, Compare] = field(default_factory=dict)


class OpCaller:
    """Call an engine's op on tensors with guards, and outputs with poison.

    Cases pass values by parameter name as anything that NumPy converts. The contract shapes the outputs, so that cases
    need not pass them. A tensor has the production dtype unless `dtypes` names another one.
    """

    def __init__(self, contract: Contract, function: OpFunction, device: str = "cpu") -> None:
        self.contract = contract
        self.function = function
        self.device = device
        self.last: tuple[dict[str, Any], dict[str, Array]] = ({}, {})
        """Arguments and outputs of the last call as NumPy arrays by name, for reports."""
        self.before_call: Callable[[OpCall], None] | None = None
        """Called with each call before the engine sees it, so that a crash leaves its inputs."""

    def call(
        self,
        values: Mapping[str, Any],
        *,
        dtypes: Mapping[str, str] | None = None,
        layouts: Mapping[str, str] | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        pattern: int = 0,
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        """Call the op once.

        Args:
            values: arguments by parameter name.
            dtypes: dtype by parameter name.
            layouts: layout by parameter name.
            shapes: shapes of outputs that the contract's axes do not determine.
            pattern: 0 or 1, selects the poison value.

        Returns:
            The arguments for the oracle and the outputs of the op, both as NumPy arrays by parameter name.

        Raises:
            Mismatch: the call raised, wrote outside its tensors or changed an input.
        """
        call = OpCall(values, dtypes or {}, layouts or {}, shapes or {})
        if self.before_call is not None:
            self.before_call(call)
        guarded, scalars = self.materialise(call, pattern)
        for g in guarded.values():
            g.seal()
        before = {name: g.before() for name, g in guarded.items()}
        self.last = ({**scalars, **before}, {})
        arguments: dict[str, Any] = {}
        for param in self.contract.params:
            if param.name in guarded:
                arguments[param.name] = guarded[param.name].view
            elif param.name in scalars:
                arguments[param.name] = scalars[param.name]
        self.launch(arguments)
        self.last = ({**scalars, **before}, self.outputs(guarded))
        self.require_unchanged(guarded)
        return self.last

    def arguments(self, call: OpCall) -> dict[str, torch.Tensor]:
        """Return the tensors that the engine receives for `call`, outputs with their poison."""
        guarded, _ = self.materialise(call)
        return {name: g.view for name, g in guarded.items()}

    def run(self, values: Mapping[str, Any], **tensors: torch.Tensor | None) -> dict[str, Array]:
        """Call the op once with some tensors passed unmodified, because they are too large to copy or guard.

        Args:
            values: other arguments by parameter name.
            **tensors: arguments to pass as they are.

        Returns:
            The outputs among the other arguments, by parameter name.

        Raises:
            Mismatch: the engine raised.
        """
        guarded, scalars = self.materialise(OpCall(values), given=tensors)
        self.launch({**scalars, **{name: g.view for name, g in guarded.items()}, **tensors})
        return self.outputs(guarded)

    def materialise(
        self,
        call: OpCall,
        pattern: int = 0,
        given: Collection[str] = (),
    ) -> tuple[dict[str, GuardedTensor], dict[str, Any]]:
        """Return the guarded tensors of a call, and its other arguments.

        Args:
            call: the call.
            pattern: 0 or 1, selects the poison value.
            given: names of arguments that the caller makes.
        """
        values, shapes = call.values, call.shapes
        arrays = {
            t.name: np.asarray(values[t.name])
            for t in self.contract.tensors
            if t.name in values and values[t.name] is not None
        }
        known = {**{n: a.shape for n, a in arrays.items()}, **shapes}
        sizes = axis_sizes(self.contract, known, values)
        guarded: dict[str, GuardedTensor] = {}
        scalars: dict[str, Any] = {}
        for param in self.contract.params:
            if param.name in given:
                continue
            if isinstance(param, Scalar):
                if param.name in values:
                    scalars[param.name] = values[param.name]
                elif param.axis in sizes:
                    scalars[param.name] = sizes[param.axis]
                elif param.tuning and param.default is REQUIRED:
                    scalars[param.name] = TILE
                continue
            if param.name in arrays:
                shape: tuple[int, ...] = arrays[param.name].shape
            elif param.written and not (param.name in values and values[param.name] is None):
                shape = tuple(shapes[param.name]) if param.name in shapes else shape_of(param, sizes)
            else:
                scalars[param.name] = None
                continue
            dtype = getattr(torch, call.dtypes.get(param.name) or param.production or param.dtypes[0])
            guarded[param.name] = GuardedTensor(
                shape,
                dtype,
                layout=call.layouts.get(param.name, "dense"),
                pattern=pattern,
                device=self.device,
                values=arrays.get(param.name),
                is_cumulative=param.cumulative is not None,
            )
        for param in self.contract.params:
            if isinstance(param, Scalar) and param.stride_of in guarded:
                scalars.setdefault(param.name, guarded[param.stride_of].view.stride(0))
        return guarded, scalars

    def launch(self, arguments: Mapping[str, Any]) -> None:
        """Call the op and wait for the device; turn an exception of either into a failure."""

        def run() -> None:
            self.function(**arguments)
            if self.device != "cpu":
                torch.cuda.synchronize()

        call_engine(run)

    def outputs(self, guarded: Mapping[str, GuardedTensor]) -> dict[str, Array]:
        """Return the outputs among the tensors of a call, as NumPy arrays by parameter name."""
        return {t.name: to_numpy(guarded[t.name].view) for t in self.contract.outputs if t.name in guarded}

    def require_unchanged(self, guarded: Mapping[str, GuardedTensor]) -> None:
        """Check that a call wrote to its outputs alone.

        Raises:
            Mismatch: memory outside of a tensor changed, or an input.
        """
        for name, g in guarded.items():
            if g.is_unchanged():
                continue
            if count := g.changed_outside():
                elements = "1 element" if count == 1 else f"{count} elements"
                raise Mismatch(Failure(Kind.OUTSIDE, f"the call wrote {elements} outside {name}", name, wrong=count))
            param = self.contract.param(name)
            if isinstance(param, Tensor) and not param.written and g.changed_inside():
                raise Mismatch(Failure(Kind.INPUT_CHANGED, f"the call changed its input {name}", name))

"""CPU fallbacks of a vLLM tree as an engine: its Python wrappers, taken out, over its C++ file, compiled alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from verispec.engines import CallShape, Description, OpFunction, Unsupported, UnsupportedCall
from verispec.engines.adapters.vllm.launch import (
    Missing,
    forwarded,
    map_parameters,
    positional,
    reject_unsupported_arguments,
    value_for,
)
from verispec.engines.adapters.vllm.refusals import guarded
from verispec.engines.adapters.vllm.source import compile as compilation
from verispec.engines.adapters.vllm.source import fallback_wiring
from verispec.engines.adapters.vllm.source.extract import CannotExtract
from verispec.engines.adapters.vllm.source.kernels_only import KernelsOnly
from verispec.engines.adapters.vllm.source.tree import Kernels
from verispec.engines.protocol.runtime_signature import RuntimeSignature
from verispec.reference import contracts
from verispec.reference.contracts import Contract

FALLBACKS = "vllm.utils.cpu_triton_utils"
"""Module of the wrappers since 0.19.0; the wrapper of a kernel ``x`` is ``_x_impl``."""


class CpuFallbacks(KernelsOnly):
    """The fallbacks of `kernels`' tree, called with the arguments that the tree's callers would pass them."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._namespace = compilation.load(kernels.sources, kernels.engine)

    def describe(self) -> Description:
        """Return the tree's version, and the file that is compiled."""
        details = {"kernels": f"{compilation.SOURCE}, compiled alone", "torch": torch.__version__}
        return Description(self._kernels.engine, self._kernels.version, "cpu", "cpu", details)

    def op(self, name: str) -> OpFunction | Unsupported:
        """Return the fallback of the op `name`, called as the tree's callers call it.

        Raises:
            RuntimeError: at the call, if the tree's callers never reach the fallback.
        """
        contract = contracts.load(name)
        try:
            kernel, wrapper = self._find(contract)
        except CannotExtract as error:
            return Unsupported(str(error))
        if contract.returns:
            return lambda *args, **kwargs: wrapper(*positional(contract, args, kwargs).values())
        parameters = self._kernels.parameters(kernel)
        shape = fallback_wiring.caller_shape(self._kernels.sources, kernel) or forwarded(parameters, wrapper)
        fault = fallback_wiring.fault(self._kernels.sources, kernel)

        def call(*args: Any, **kwargs: Any) -> None:
            if fault:
                raise RuntimeError(fault)
            launch(contract, wrapper, parameters, shape, positional(contract, args, kwargs))

        call.__name__ = f"{FALLBACKS}.{wrapper.__name__}"
        return guarded(contract, call)

    def definitions(self) -> Mapping[str, RuntimeSignature]:
        """Return the runtime signatures of all fallbacks."""
        found = {}
        for name in contracts.names():
            contract = contracts.load(name)
            try:
                kernel, wrapper = self._find(contract)
            except CannotExtract:
                continue
            if contract.returns:
                continue
            parameters = tuple(self._kernels.parameters(kernel))
            shape = fallback_wiring.caller_shape(self._kernels.sources, kernel) or forwarded(parameters, wrapper)
            runs = not fallback_wiring.fault(self._kernels.sources, kernel)
            found[name] = RuntimeSignature(name, kernel, parameters, wrapper, runs, shape)
        return found

    def close(self) -> None:
        """Do nothing: a library cannot be unloaded within a process."""

    def _find(self, contract: Contract) -> tuple[str, Callable[..., Any]]:
        """Return (dotted name of the Triton kernel, its fallback), or raise `CannotExtract`."""
        if contract.returns:
            return self._kernels.find(contract)
        names = [symbol.name for symbol in contract.symbols if symbol.engine == "vllm"]
        present = [name for name in names if self._kernels.parameters(name)]
        if not present:
            raise CannotExtract(f"the tree has none of {', '.join(names)}" if names else "vLLM has no such kernel")
        for name in names:
            wrapper = f"{FALLBACKS}._{name.rpartition('.')[2].strip('_')}_impl"
            try:
                function = self._kernels.load(wrapper, {"torch.ops._C": f"torch.ops.{self._namespace}"})
            except CannotExtract:
                continue
            missing = [op for op in function.__code__.co_names if op.endswith("_impl") and not self._compiled(op)]
            if missing:
                raise CannotExtract(f"{missing[0]} is not in {compilation.SOURCE}, the file that is compiled alone")
            return present[0], function
        raise CannotExtract(f"the tree has no CPU fallback of {present[0]}")

    def _compiled(self, op: str) -> bool:
        return hasattr(getattr(torch.ops, self._namespace), op)


def launch(
    contract: Contract,
    wrapper: Callable[..., Any],
    parameters: list[str],
    shape: CallShape,
    bound: Mapping[str, Any],
) -> None:
    """Call a fallback as the tree's callers reach it.

    Args:
        contract: the op's contract.
        wrapper: the fallback.
        parameters: names of the Triton kernel's parameters, in order.
        shape: shape of the callers' calls.
        bound: arguments by contract name.

    Raises:
        UnsupportedCall: callers pass a value that the contract does not have, or cannot pass one that it has.
    """
    mapping = map_parameters(contract, parameters)
    names = [*parameters[: shape.positional], *shape.keywords]
    try:
        arguments = {name: value_for(contract, name, mapping, bound) for name in names}
    except Missing as error:
        raise UnsupportedCall(f"callers pass {error}, which the contract does not have") from error
    passed = {mapping[name]: value for name, value in arguments.items() if name in mapping}
    reject_unsupported_arguments(contract, passed, bound, wrapper.__name__)
    by_position = [arguments.pop(name) for name in parameters[: shape.positional]]
    wrapper(*by_position, **arguments)

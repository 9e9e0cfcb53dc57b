"""Triton kernels of a vLLM tree as an engine, in this process."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
import triton

from verispec.engines import Description, OpFunction, Unsupported, UnsupportedCall
from verispec.engines.adapters.vllm.launch import (
    Missing,
    forwarded,
    kernels_part,
    map_parameters,
    positional,
    reject_unsupported_arguments,
    value_for,
)
from verispec.engines.adapters.vllm.refusals import guarded
from verispec.engines.adapters.vllm.source.extract import CannotExtract
from verispec.engines.adapters.vllm.source.fallback_wiring import caller_shape
from verispec.engines.adapters.vllm.source.host_functions import WHOLE, HostFunction
from verispec.engines.adapters.vllm.source.kernels_only import KernelsOnly
from verispec.engines.adapters.vllm.source.tree import Kernels
from verispec.engines.protocol.runtime_signature import RuntimeSignature
from verispec.engines.triton_interpreter import limits
from verispec.reference import contracts
from verispec.reference.contracts import Contract


class TritonKernels(KernelsOnly):
    """`kernels` run on `device`: "cuda", or "cpu" where TRITON_INTERPRET=1 was set before triton was imported."""

    def __init__(self, kernels: Kernels, device: str) -> None:
        self._kernels = kernels
        self._device = device

    def describe(self) -> Description:
        """Return the tree's version, and the device of its kernels."""
        where = torch.cuda.get_device_name() if self._device == "cuda" else "Triton's interpreter"
        details = {"kernels": where, "triton": triton.__version__, "torch": torch.__version__}
        return Description(self._kernels.engine, self._kernels.version, "cuda", self._device, details)

    def op(self, name: str) -> OpFunction | Unsupported:
        """Return the kernel or host function of the op `name`."""
        contract = contracts.load(name)
        try:
            if name in WHOLE:
                return self._whole(contract, WHOLE[name])
            where, function = self._kernels.find(contract)
        except CannotExtract as error:
            return Unsupported(str(error))
        except ImportError as error:
            return Unsupported(f"{name} needs a package that is not installed: {error}")
        if contract.returns:
            return lambda *args, **kwargs: function(*positional(contract, args, kwargs).values())
        if not contract.grid:
            return Unsupported(f"{where} does another part of the work than {name}: no launch is known for it")

        def call(*args: Any, **kwargs: Any) -> None:
            launch(contract, where, function, positional(contract, args, kwargs))

        call.__name__ = where
        return guarded(contract, call)

    def _whole(self, contract: Contract, whole: HostFunction) -> OpFunction:
        function = self._kernels.load(whole.function)

        def call(*args: Any, **kwargs: Any) -> None:
            with limits():
                whole.call(function, positional(contract, args, kwargs))

        call.__name__ = whole.function
        return guarded(contract, call)

    def definitions(self) -> Mapping[str, RuntimeSignature]:
        """Return the runtime signatures of all kernels."""
        found = {}
        for name in contracts.names():
            try:
                where, function = self._kernels.find(contracts.load(name))
            except CannotExtract:
                continue
            if hasattr(function, "arg_names"):
                parameters = tuple(function.arg_names)
                shape = caller_shape(self._kernels.sources, where) or forwarded(parameters, function.fn)
                found[name] = RuntimeSignature(
                    name, where, parameters, function.fn, runs=True, shape=kernels_part(shape)
                )
        return found

    def close(self) -> None:
        """Do nothing: the engine holds nothing."""


def launch(contract: Contract, where: str, kernel: Any, bound: Mapping[str, Any]) -> None:
    """Launch `kernel` with the contract's arguments, by name.

    Args:
        contract: the op's contract.
        where: dotted name of the kernel, for messages.
        kernel: Triton's function.
        bound: arguments by contract name.

    Raises:
        UnsupportedCall: the kernel has a parameter without a counterpart, or cannot receive a value of the call.
    """
    mapping = map_parameters(contract, kernel.arg_names)
    defaults = {p.name for p in inspect.signature(kernel.fn).parameters.values() if p.default is not p.empty}
    arguments: dict[str, Any] = {}
    for engine_name in kernel.arg_names:
        try:
            arguments[engine_name] = value_for(contract, engine_name, mapping, bound)
        except Missing as error:
            if engine_name not in defaults:
                raise UnsupportedCall(f"{where} needs {engine_name!r}, which the contract does not have") from error
    passed = {mapping[engine_name]: value for engine_name, value in arguments.items() if engine_name in mapping}
    reject_unsupported_arguments(contract, passed, bound, where)
    programs = contracts.grid(contract, bound)
    if not all(programs):
        return
    with limits():
        kernel[programs](**arguments)

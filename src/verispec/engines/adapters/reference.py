"""Engines ``reference`` (C++ on the CPU) and ``reference:triton`` (CUDA, or the interpreter in a child process)."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import verispec
from verispec.engines import Description, Engine, OpFunction, Unsupported
from verispec.errors import VerispecError
from verispec.reference import contracts


class Reference:
    """The reference engine over one set of kernels: `verispec.reference.cpu` or `verispec.reference.triton`."""

    def __init__(self, kernels: str, name: str, device: str, details: Mapping[str, str]) -> None:
        self._kernels = importlib.import_module(kernels)
        self._description = Description(
            name, verispec.__version__, "cuda" if kernels.endswith("triton") else "cpu", device, details
        )

    def describe(self) -> Description:
        """Return the identity of the reference engine."""
        return self._description

    def op(self, name: str) -> OpFunction | Unsupported:
        """Return the reference's kernel of the op `name`."""
        if contracts.load(name).returns:
            from verispec.reference.sampler import synthetic_rates

            rates: OpFunction | None = getattr(synthetic_rates, name, None)
            return rates or Unsupported(f"{name} is not an op")
        try:
            function: OpFunction = self._kernels.op(name)
        except KeyError as error:
            return Unsupported(str(error.args[0]))
        return function

    def tile_sizes(self, name: str) -> tuple[int, ...]:
        """Return the tile sizes and thresholds of the kernel of the op `name`; none if its module reports none."""
        tell = getattr(self._kernels, "tile_sizes", None)
        return () if tell is None else tuple(tell(name))

    def sampler(self, family: str = "flat") -> Any | Unsupported:
        """Return the end-to-end sampler of `family`: flat, request_state, block or fused."""
        if family in ("request_state", "block", "fused"):
            from verispec.reference.sampler.whole_request_state import WholeRequestStateSampler

            device = self._description.device
            return WholeRequestStateSampler(device, block_verification=family == "block", fused=family == "fused")
        if family != "flat":
            return Unsupported(f"the reference has no {family} sampler")
        from verispec.reference.sampler.whole import WholeFlatSampler

        return WholeFlatSampler(self._description.device)

    def load(self, target: Path, **options: Any) -> Any | Unsupported:
        """Return a runner of the checkpoint folder `target`; see `Engine.load`."""
        if self._kernels.__name__.endswith("triton") and self._description.device != "cuda":
            return Unsupported("the GPU runner needs a GPU; the engine 'reference' generates on the CPU")
        require_packages("torch", "transformers", "safetensors")
        from verispec.engines.protocol.generation import LoadOptions

        wanted = LoadOptions(**options)
        if wanted.async_scheduling:
            return Unsupported("the reference schedules a step after the tokens of the step before are known")
        if wanted.rejection_sample_method == "block" and wanted.sampler == "flat":
            return Unsupported("block verification needs sampler=request_state: the flat ops have no such rule")
        if wanted.tensor_parallel_size > 1:
            return self._load_ranks(target, wanted)
        if self._description.device == "cuda":
            from verispec.reference.runners.gpu import GPURunner

            return GPURunner(target, wanted)
        from verispec.reference.runners.cpu import CPURunner

        return CPURunner(target, wanted)

    def _load_ranks(self, target: Path, wanted: Any) -> Any | Unsupported:
        """Return a runner over several ranks of the checkpoint folder `target`."""
        if wanted.lora_adapters:
            return Unsupported("the reference adds LoRA adapters on one rank alone")
        if self._description.device == "cuda":
            import torch

            if torch.cuda.device_count() < wanted.tensor_parallel_size:
                return Unsupported(f"{wanted.tensor_parallel_size} ranks need as many GPUs as ranks")
        from verispec.reference.runners.ranks import CPU, GPU, RankedRunner

        return RankedRunner(target, wanted, GPU if self._description.device == "cuda" else CPU)

    def definitions(self) -> Mapping[str, Any]:
        """Return all kernels by op name."""
        found = {name: self.op(name) for name in contracts.names()}
        return {name: function for name, function in found.items() if not isinstance(function, Unsupported)}

    def close(self) -> None:
        """Do nothing: the engine holds nothing."""


def require_packages(*names: str) -> None:
    """Raise an error when a package that generation needs is not installed.

    Args:
        names: top-level modules of the packages.

    Raises:
        VerispecError: V-ENG-GENERATE, with the missing ones.
    """
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise VerispecError(
            "V-ENG-GENERATE", f"{' and '.join(missing)} not installed", hint="pip install 'verispec[generate]'"
        )


def cpu(device: str | None = None) -> Engine:
    """Return the reference on the CPU.

    Args:
        device: None or "cpu".

    Raises:
        VerispecError: V-ENG-DEVICE for another device, V-ENG-BUILD if the extension is not built.
    """
    if device == "cuda":
        raise VerispecError(
            "V-ENG-DEVICE",
            "the engine 'reference' runs on the CPU",
            where="--device cuda",
            hint="the reference's GPU kernels are the engine 'reference:triton'",
        )
    try:
        return Reference("verispec.reference.cpu", "reference", "cpu", {"kernels": "C++ and OpenMP"})
    except ImportError as error:
        raise VerispecError(
            "V-ENG-BUILD",
            "the reference's CPU kernels are not built",
            where="--engine reference",
            cause=str(error),
            hint="install the project (pip install . in its folder, or make); it needs a C++17 compiler",
        ) from error


def triton(device: str | None = None) -> Engine:
    """Return the reference's Triton kernels.

    Args:
        device: None is "cuda" if there is a GPU, else "cpu": Triton's interpreter in a child process.

    Raises:
        VerispecError: V-ENG-TRITON if triton or torch is not installed, V-ENG-INTERPRETER for an interpreter that
            cannot be used.
    """
    missing = [package for package in ("torch", "triton") if find_spec(package) is None]
    if missing:
        raise VerispecError(
            "V-ENG-TRITON",
            f"{' and '.join(missing)} not installed",
            where="--engine reference:triton",
            hint="pip install 'verispec[triton]'; without a GPU the kernels run in Triton's interpreter",
        )
    import torch

    if os.environ.get("TRITON_INTERPRET") == "1":
        from verispec.engines import triton_interpreter

        triton_interpreter.prepare("reference:triton")
        where, kind = "cpu", "Triton's interpreter"
    elif device != "cpu" and torch.cuda.is_available():
        where, kind = "cuda", torch.cuda.get_device_name()
    else:
        from verispec.engines.process.subprocess_ops import Child

        return Child("reference:triton", device="cpu", environment={"TRITON_INTERPRET": "1"})
    details = {"kernels": kind, "triton": importlib.import_module("triton").__version__, "torch": torch.__version__}
    return Reference("verispec.reference.triton", "reference:triton", where, details)

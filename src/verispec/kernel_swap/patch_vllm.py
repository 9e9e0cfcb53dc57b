"""Install reference kernels where vLLM's callers look, inside the engine's process.

Nothing is imported ahead of the program. A few modules of vLLM are watched, and patched right after their import:

- the override registry (0.31 and later);
- the platform, for devices that register no overrides (CUDA);
- the CPU model runner, which assigned fallbacks in releases without a registry (0.19 to 0.30);
- the modules whose functions are ops.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from verispec.kernel_swap import patch_sites
from verispec.kernel_swap.after_import import AfterImport
from verispec.kernel_swap.run_command import LOADED, WATCH, note
from verispec.reference import contracts
from verispec.reference.contracts import Contract, Scalar


def arm() -> None:
    """Watch for the engine's modules, if the environment names ops to substitute or a module to note."""
    ops, sites = patch_sites.asked_for(), patch_sites.sites()
    watched: dict[str, list[Callable[[ModuleType], None]]] = {}
    if watch := os.environ.get(WATCH):
        watched[watch] = [lambda module: note(LOADED)]
    if sites:
        for op, place in sites.items():
            module, _, attribute = place.partition(":")
            if op in ops and module:
                watched.setdefault(module, []).append(partial(patch_sites.patch, op=op, attribute=attribute))
    elif ops:
        vllm = VllmPatch(ops)
        for name, patch in (
            ("vllm.triton_utils.dispatcher", vllm.patch_registry),
            ("vllm.platforms.interface", vllm.patch_platform),
            ("vllm.v1.worker.cpu_model_runner", vllm.patch_runner),
            *((module, vllm.patch_functions) for module, _ in FUNCTIONS.values()),
        ):
            watched.setdefault(name, []).append(patch)
    if watched:
        sys.meta_path.insert(0, AfterImport(watched))


class VllmPatch:
    """Reference kernels for `ops`, and the ways to install them in vLLM."""

    def __init__(self, ops: Sequence[str]) -> None:
        self._names = frozenset(ops)
        self._contracts = [contracts.load(op) for op in ops]

    def patch_registry(self, module: Any) -> None:
        """Exchange kernels at registration, in ``register_kernels`` of vllm.triton_utils.dispatcher."""
        register = module.register_kernels

        @functools.wraps(register)
        def exchanged(overrides: Mapping[str, Callable[..., Any]]) -> Any:
            return register({**overrides, **self._overrides(lambda name: name in overrides)})

        module.register_kernels = exchanged

    def patch_platform(self, module: Any) -> None:
        """Register the reference's kernels for a platform without overrides (CUDA)."""
        platform = module.Platform
        if not hasattr(platform, "register_triton_kernel_overrides"):
            return

        def register(cls: type) -> None:
            dispatcher = importlib.import_module("vllm.triton_utils.dispatcher")
            dispatcher.register_kernels(self._overrides(lambda name: True))

        platform.register_triton_kernel_overrides = classmethod(register)

    def patch_runner(self, module: Any) -> None:
        """Exchange kernels after each method of the CPU runner that assigns fallbacks (0.19 to 0.30)."""
        from verispec.engines.adapters.vllm.installed import call_sites, fallbacks

        for class_name, method in fallbacks.replacing_methods(Path(module.__file__).read_text(encoding="utf-8")):
            cls = getattr(module, class_name)
            assign = getattr(cls, method)

            def assign_and_exchange(runner: Any, assign: Callable[[Any], None] = assign) -> None:
                found = {contract.name: call_sites.find(contract) for contract in self._contracts}
                assign(runner)
                for holders in found.values():
                    for holder in holders if isinstance(holders, list) else ():
                        holder.put(Launchable(reference_kernel(holder.contract, holder.parameters())))

            setattr(cls, method, assign_and_exchange)

    def patch_functions(self, module: Any) -> None:
        """Replace the functions of `module` that are ops under the names that callers import."""
        for name, (where, function) in FUNCTIONS.items():
            if where == module.__name__ and name in self._names and hasattr(module, name):
                setattr(module, name, function)

    def _overrides(self, wanted: Callable[[str], bool]) -> dict[str, Callable[..., Any]]:
        """Return reference kernels by the dotted name under which vLLM knows each kernel."""
        from verispec.engines.adapters.vllm.installed.call_sites import parameters_of, resolve_symbol

        found = {}
        for contract in self._contracts:
            for symbol in contract.symbols:
                resolved = resolve_symbol(symbol.name) if symbol.engine == "vllm" and wanted(symbol.name) else None
                if resolved is not None:
                    found[symbol.name] = reference_kernel(contract, parameters_of(resolved[2]))
        return found


class Launchable:
    """A plain function with the syntax ``kernel[grid](...)``; it ignores the grid."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.func = function

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return self.func


def reference_kernel(contract: Contract, theirs: Sequence[str]) -> Callable[..., None]:
    """Return the reference's kernel behind the parameters of the engine's.

    Args:
        contract: the op's contract.
        theirs: names of the engine's parameters, in order.

    Returns:
        A function with the signature `theirs`. It runs the reference's kernel for the device of its tensors. Arguments
        that this version of the engine does not have are off or absent.
    """
    from verispec.engines.adapters.vllm.launch import map_parameters

    mapping = map_parameters(contract, theirs)
    signature = inspect.Signature([inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in theirs])

    def kernel(*args: Any, **kwargs: Any) -> None:
        passed = signature.bind_partial(*args, **kwargs).arguments
        arguments = {mapping[name]: value for name, value in passed.items() if name in mapping}
        for param in contract.params:
            if isinstance(param, Scalar):
                if param.tuning or (param.name not in arguments and param.type is bool):
                    arguments.setdefault(param.name, param.type(1 if param.tuning else 0))
            else:
                arguments.setdefault(param.name, None)
        note(contract.name)
        reference_function(contract.name, arguments)(**arguments)

    kernel.__name__ = f"reference_{contract.name}"
    kernel.__signature__ = signature  # type: ignore[attr-defined]
    return kernel


def _apply_top_k_top_p(logits: Any, k: Any, p: Any, **_: Any) -> Any:
    """Mask `logits` in place, as vLLM's callers allow; other arguments select an algorithm and are ignored."""
    note("apply_top_k_top_p")
    function = importlib.import_module("verispec.reference.sampler.top_k_top_p").apply_top_k_top_p
    return function(logits, k, p, inplace=True)


FUNCTIONS = {"apply_top_k_top_p": ("vllm.v1.sample.ops.topk_topp_sampler", _apply_top_k_top_p)}
"""Ops that are functions of vLLM's and no kernels: the module that callers import each from, and its replacement."""


def exchangeable() -> list[str]:
    """Return the ops whose implementations can be exchanged in vLLM."""
    return [name for name in contracts.names() if contracts.load(name).family == "flat" or name in FUNCTIONS]


def reference_function(op: str, arguments: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the reference's kernel of `op` for the device of `arguments`."""
    on_gpu = any(getattr(value, "is_cuda", False) for value in arguments.values())
    kernels = importlib.import_module("verispec.reference.triton" if on_gpu else "verispec.reference.cpu")
    function: Callable[..., Any] = kernels.op(op)
    return function

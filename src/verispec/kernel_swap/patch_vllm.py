"""Inside the engine's process: put reference kernels where vLLM's callers look.

Nothing is imported ahead of the program. A few modules of vLLM are watched, and patched right after they are
imported: the override registry (0.31 and later), the platform for devices that register no overrides of their own,
and before that the CPU model runner that assigned fallbacks. The modules whose functions are ops follow.
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
        graft = Graft(ops)
        for name, patch in (
            ("vllm.triton_utils.dispatcher", graft.patch_registry),
            ("vllm.platforms.interface", graft.patch_platform),
            ("vllm.v1.worker.cpu_model_runner", graft.patch_runner),
            *((module, graft.patch_functions) for module, _ in FUNCTIONS.values()),
        ):
            watched.setdefault(name, []).append(patch)
    if watched:
        sys.meta_path.insert(0, AfterImport(watched))


class Graft:
    """Reference kernels for `ops`, and the ways to put them into vLLM."""

    def __init__(self, ops: Sequence[str]) -> None:
        self._names = frozenset(ops)
        self._contracts = [contracts.load(op) for op in ops]

    def patch_registry(self, module: Any) -> None:
        """``register_kernels`` of vllm.triton_utils.dispatcher: what a platform registers is exchanged on the way."""
        register = module.register_kernels

        @functools.wraps(register)
        def exchanged(overrides: Mapping[str, Callable[..., Any]]) -> Any:
            return register({**overrides, **self._overrides(lambda name: name in overrides)})

        module.register_kernels = exchanged

    def patch_platform(self, module: Any) -> None:
        """A platform without overrides of its own (CUDA) registers ours."""
        platform = module.Platform
        if not hasattr(platform, "register_triton_kernel_overrides"):
            return

        def register(cls: type) -> None:
            dispatcher = importlib.import_module("vllm.triton_utils.dispatcher")
            dispatcher.register_kernels(self._overrides(lambda name: True))

        platform.register_triton_kernel_overrides = classmethod(register)

    def patch_runner(self, module: Any) -> None:
        """The CPU runner's methods that assign fallbacks (0.19 to 0.30): ours go into the same holders after them."""
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
        """Functions by the names that callers import from `module`."""
        for name, (where, function) in FUNCTIONS.items():
            if where == module.__name__ and name in self._names and hasattr(module, name):
                setattr(module, name, function)

    def _overrides(self, wanted: Callable[[str], bool]) -> dict[str, Callable[..., Any]]:
        """Reference kernels by the dotted name under which vLLM knows each kernel."""
        from verispec.engines.adapters.vllm.installed.call_sites import parameters_of, resolve_symbol

        found = {}
        for contract in self._contracts:
            for symbol in contract.symbols:
                resolved = resolve_symbol(symbol.name) if symbol.engine == "vllm" and wanted(symbol.name) else None
                if resolved is not None:
                    found[symbol.name] = reference_kernel(contract, parameters_of(resolved[2]))
        return found


class Launchable:
    """``kernel[grid](...)`` over a plain function; the grid is the function's own affair."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.func = function

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return self.func


def reference_kernel(contract: Contract, theirs: Sequence[str]) -> Callable[..., None]:
    """The reference's kernel behind the parameters of the engine's; on CUDA where the tensors are there.

    What this version of the engine does not pass is off or absent: a flag that it does not have is False.
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
    """As vLLM's callers have it: the logits are theirs to change; what else they pass says how, not what."""
    note("apply_top_k_top_p")
    function = importlib.import_module("verispec.reference.sampler.top_k_top_p").apply_top_k_top_p
    return function(logits, k, p, inplace=True)


FUNCTIONS = {"apply_top_k_top_p": ("vllm.v1.sample.ops.topk_topp_sampler", _apply_top_k_top_p)}
"""Ops that are functions of vLLM's and no kernels: the module that callers import each from, and its replacement."""


def exchangeable() -> list[str]:
    """The ops whose implementations can be exchanged in vLLM."""
    return [name for name in contracts.names() if contracts.load(name).family == "flat" or name in FUNCTIONS]


def reference_function(op: str, arguments: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the reference's kernel of `op` for the device of `arguments`."""
    on_gpu = any(getattr(value, "is_cuda", False) for value in arguments.values())
    kernels = importlib.import_module("verispec.reference.triton" if on_gpu else "verispec.reference.cpu")
    function: Callable[..., Any] = kernels.op(op)
    return function

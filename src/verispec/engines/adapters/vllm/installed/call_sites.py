"""Call sites of each kernel in vLLM, and their launches.

Two shapes exist. Up to 0.29 a caller's module holds the kernel by name and launches it as
``kernel[grid](...)``. Since 0.30 a dispatcher object has the kernel as its attribute ``kernel``;
callers call the object, which works out the grid and the compile-time flags. An op is launched
through what the caller holds, so a fallback that was installed somewhere else is never used.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from verispec.engines import CallShape, StandaloneCall, UnsupportedCall
from verispec.engines.adapters.vllm.installed.fallbacks import import_if_there, package_modules
from verispec.engines.adapters.vllm.launch import (
    Missing,
    call_shape,
    map_parameters,
    reject_unsupported_arguments,
    value_for,
)
from verispec.reference.contracts import Contract, grid


@dataclass(slots=True)
class CallSite:
    """The call site of one op in vLLM.

    where: dotted name of the holder; original: the Triton kernel, or the plain function that stands
    in for it without Triton; dispatcher: the dispatcher object, or None where the caller launches the kernel itself.
    """

    contract: Contract
    where: str
    original: Any
    module: ModuleType
    attribute: str
    dispatcher: Any = None
    shape: CallShape | None = None

    @property
    def held(self) -> Any:
        """The object that the caller holds now: a kernel, a dispatcher, or a plugin's replacement of either."""
        return getattr(self.module, self.attribute)

    @property
    def supplanted(self) -> bool:
        """True if a plugin has replaced the dispatcher itself."""
        return self.dispatcher is not None and self.held is not self.dispatcher

    @property
    def kernel(self) -> Any:
        """The kernel that the caller would launch now, or a plugin's replacement of the dispatcher."""
        return self.held if self.dispatcher is None or self.supplanted else self.dispatcher.kernel

    @property
    def replaced(self) -> bool:
        """True if the call site has something else than the original kernel."""
        return self.kernel is not self.original

    @property
    def implementation(self) -> Any:
        """The function that runs: behind an override's wrapper, else the kernel itself."""
        kernel = self.kernel
        return getattr(kernel, "func", None) or getattr(kernel, "fn", kernel)

    def parameters(self) -> list[str]:
        """Return the original kernel's parameter names, in order."""
        return parameters_of(self.original)

    def put(self, kernel: Any) -> None:
        """Put `kernel` where the caller looks. A dispatcher derives its launch from the kernel anew."""
        if self.dispatcher is None:
            setattr(self.module, self.attribute, kernel)
            return
        setattr(self.module, self.attribute, self.dispatcher)
        self.dispatcher.kernel = kernel
        vars(self.dispatcher).pop("_kernel_arg_names", None)

    def launch(self, bound: Mapping[str, Any]) -> None:
        """Call the op as vLLM's caller does.

        Args:
            bound: arguments by the contract's parameter names.

        Raises:
            UnsupportedCall: the caller cannot ask for these arguments.
        """
        if self.dispatcher is not None:
            self._dispatch(bound)
        else:
            self._launch_kernel(bound)

    def _dispatch(self, bound: Mapping[str, Any]) -> None:
        parameters = inspect.signature(self.dispatcher).parameters
        mapping = map_parameters(self.contract, list(parameters))
        arguments = {name: self._value(name, mapping, bound) for name in parameters}
        _, launched = dispatch_function(self.dispatcher)(**arguments)[:2]
        by_name = map_parameters(self.contract, list(launched))
        passed = {mapping[name]: value for name, value in arguments.items() if name in mapping}
        passed |= {by_name[name]: value for name, value in launched.items() if name in by_name}
        reject_unsupported_arguments(self.contract, passed, bound, self.where)
        self.held(**arguments)

    def _launch_kernel(self, bound: Mapping[str, Any]) -> None:
        names = self.parameters()
        mapping = map_parameters(self.contract, names)
        shape = self.shape or CallShape(len(names), ())
        arguments = {name: self._value(name, mapping, bound) for name in [*names[: shape.positional], *shape.keywords]}
        passed = {mapping[name]: value for name, value in arguments.items() if name in mapping}
        reject_unsupported_arguments(self.contract, passed, bound, self.where)
        by_position = [arguments.pop(name) for name in names[: shape.positional]]
        self.kernel[grid(self.contract, bound)](*by_position, **arguments)

    def source(self, bound: Mapping[str, Any], variables: Mapping[str, str]) -> StandaloneCall:
        """Return the source of this launch, with a variable for each tensor.

        Args:
            bound: arguments by the contract's parameter names.
            variables: name of the variable that holds each tensor, by parameter name; other arguments are written out.
        """

        def text(name: str, mapping: Mapping[str, str]) -> str:
            parameter = mapping.get(name, "")
            return variables[parameter] if parameter in variables else repr(self._value(name, mapping, bound))

        imported = f"from {self.module.__name__} import {self.attribute}"
        if self.dispatcher is not None:
            parameters = list(inspect.signature(self.dispatcher).parameters)
            mapping = map_parameters(self.contract, parameters)
            given = ", ".join(f"{name}={text(name, mapping)}" for name in parameters)
            return StandaloneCall((imported,), f"{self.attribute}({given})")
        names = self.parameters()
        mapping = map_parameters(self.contract, names)
        shape = self.shape or CallShape(len(names), ())
        given = ", ".join(
            [text(name, mapping) for name in names[: shape.positional]]
            + [f"{name}={text(name, mapping)}" for name in shape.keywords]
        )
        return StandaloneCall((imported,), f"{self.attribute}[{grid(self.contract, bound)}]({given})")

    def _value(self, name: str, mapping: Mapping[str, str], bound: Mapping[str, Any]) -> Any:
        try:
            return value_for(self.contract, name, mapping, bound)
        except Missing as error:
            raise UnsupportedCall(f"{self.where} needs {name!r}, which the contract does not have") from error


def parameters_of(kernel: Any) -> list[str]:
    """Return the parameter names of `kernel`, in order, for a Triton kernel or a plain function."""
    names = getattr(kernel, "arg_names", None)
    return list(names) if names is not None else list(inspect.signature(kernel).parameters)


def dispatch_function(dispatcher: Any) -> Callable[..., Any]:
    """Return the pure function behind a dispatcher.

    Args:
        dispatcher: the object that callers of vLLM 0.30 or later hold.

    Returns:
        A function that takes the caller's arguments and returns the grid and the arguments of the launch.
    """
    inner = getattr(dispatcher, "__wrapped__", None)
    if inner is not None:
        function: Callable[..., Any] = inner
        return function
    call = inspect.unwrap(type(dispatcher).__call__)
    return lambda **arguments: call(dispatcher, **arguments)


def find(contract: Contract, package: str = "vllm") -> list[CallSite] | str:
    """Return every call site of the op's kernel in an installed package.

    Call it before any override is installed: a dispatcher is recognised by the original kernel in it.

    Args:
        contract: the op's contract.
        package: name of the package whose modules may hold the kernel.

    Returns:
        The call sites, or the reason for none.
    """
    tried = []
    for symbol in contract.symbols:
        if symbol.engine != "vllm" or symbol.name in tried:
            continue
        tried.append(symbol.name)
        resolved = resolve_symbol(symbol.name)
        if resolved is None:
            continue
        host, attribute, original = resolved
        dispatcher = _dispatcher_of(original, host, package)
        if dispatcher is not None:
            module, name, owner = dispatcher
            return [CallSite(contract, f"{module.__name__}.{name}", original, module, name, dispatcher=owner)]
        if isinstance(host, ModuleType):
            return _launch_sites(contract, host, attribute, original, package)
    return f"this vLLM has none of {', '.join(tried)}" if tried else "the contract names no vLLM kernel"


def resolve_symbol(dotted: str) -> tuple[Any, str, Any] | None:
    """Return the object of a dotted name, with its host.

    Args:
        dotted: ``package.module.name`` or ``package.module.Class.name``.

    Returns:
        (host, attribute, kernel), where the host is the module or the class; None if there is no such name.
    """
    host_name, _, attribute = dotted.rpartition(".")
    module_name, _, class_name = host_name.rpartition(".")
    if class_name[:1].isupper():
        module = import_if_there(module_name)
        host = getattr(module, class_name, None)
    else:
        host = import_if_there(host_name)
    original = getattr(host, attribute, None)
    return None if original is None else (host, attribute, original)


def resolved(dotted: str) -> Any:
    """Return the function, method or class of a dotted name of vLLM; None if there is no such name."""
    found = resolve_symbol(dotted) if dotted else None
    return None if found is None else found[2]


def _dispatcher_of(original: Any, host: Any, package: str) -> tuple[ModuleType, str, Any] | None:
    """Return (module, name, dispatcher) of the module-level object that launches `original` as its ``kernel``."""
    for module in package_modules(f"{package}."):
        for name, value in list(vars(module).items()):
            if isinstance(value, type) or not hasattr(value, "__dict__") or isinstance(value, ModuleType):
                continue
            held = vars(value).get("kernel")
            if held is None and isinstance(host, type) and type(value) is host:
                held = getattr(host, "kernel", None)
            if held is original and value is not original and callable(value):
                return module, name, value
    return None


def _launch_sites(
    contract: Contract, host: ModuleType, attribute: str, original: Any, package: str
) -> list[CallSite] | str:
    """Return a call site per module that launches ``attribute[grid](...)`` and holds `original` under that name."""
    root = Path(str(importlib.import_module(package).__file__)).parent
    launch = re.compile(rf"\b{re.escape(attribute)}\[")
    holders = []
    for path in sorted((root / "v1").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if not launch.search(source):
            continue
        shape = call_shape(source, attribute)
        if shape is None:
            continue
        name = ".".join([package, *path.relative_to(root).with_suffix("").parts])
        module = importlib.import_module(name)
        if getattr(module, attribute, None) is original:
            holders.append(CallSite(contract, f"{name}.{attribute}", original, module, attribute, shape=shape))
    return holders or f"nothing in this vLLM launches {host.__name__}.{attribute}"

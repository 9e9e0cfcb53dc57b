"""Launch a kernel of any engine version with the arguments of a contract.

Versions call the same thing by different names (``output_ptr`` and ``output``, ``block_size`` and
``KV_CACHE_BLOCK_SIZE``). A host-side caller also knows sizes that the kernel itself never sees (its
grid). Both are settled here, for installed engines and for kernels taken out of a source tree.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verispec.engines import CallShape, UnsupportedCall
from verispec.reference.contracts import Contract, Scalar, bind, host_sizes
from verispec.static.linking.binding import LAUNCH_OPTIONS

_STRIDE = re.compile(r"(?P<tensor>\w+?)_stride_?(?P<dim>\d*)", re.IGNORECASE)


def aliases(contract: Contract, name: str) -> list[str]:
    """Return the names that engines give a parameter, the contract's own first.

    Args:
        contract: contract of the op; its symbols list renamed parameters.
        name: name of the parameter in the contract.
    """
    bare = name.removesuffix("_ptr")
    renamed = [symbol.rename[name] for symbol in contract.symbols if name in symbol.rename]
    found = [name, *renamed, bare, f"{bare}_ptr", *(alias.removesuffix("_ptr") for alias in renamed)]
    return list(dict.fromkeys(found))


def map_parameters(contract: Contract, engine_names: Sequence[str]) -> dict[str, str]:
    """Return the contract's parameter for each engine parameter that has a counterpart.

    A host-side caller may have a compile-time parameter in lower case. That counts only where no other name does, and
    never for a tuning parameter: BLOCK_SIZE is a tile, ``block_size`` a KV block.

    Args:
        contract: the op's contract.
        engine_names: parameters of the engine's callable.

    Returns:
        Contract names by engine names.
    """
    mapping: dict[str, str] = {}
    unmatched = []
    for param in contract.params:
        match = next((a for a in aliases(contract, param.name) if a in engine_names and a not in mapping), None)
        if match is not None:
            mapping[match] = param.name
        elif not (isinstance(param, Scalar) and param.tuning):
            unmatched.append(param.name)
    for name in unmatched:
        if (other := name.swapcase()) in engine_names:
            mapping.setdefault(other, name)
    return mapping


def positional(contract: Contract, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by contract name, in the contract's order, defaults included.

    Args:
        contract: the op's contract.
        args: positional arguments, in the contract's order.
        kwargs: arguments by the contract's names.

    Raises:
        ContractError: a parameter is missing, unknown or given twice.
    """
    bound = bind(contract, args, kwargs)
    return {param.name: bound[param.name] for param in contract.params if param.name in bound}


class Missing(Exception):
    """A parameter of the engine's that neither the contract nor the host-side sizes supply."""


def value_for(contract: Contract, engine_name: str, mapping: Mapping[str, str], bound: Mapping[str, Any]) -> Any:
    """Return the value of an engine parameter: a contract parameter, a stride, or a size that callers know.

    Args:
        contract: the op's contract.
        engine_name: name of the parameter.
        mapping: contract names by engine names, of `map_parameters`.
        bound: arguments by contract name.

    Raises:
        Missing: none of these has the value.
    """
    if engine_name in mapping and mapping[engine_name] in bound:
        value = bound[mapping[engine_name]]
        # Kernels take an upper bound as the length of a block, which callers round up to a power of two.
        bounds = [param.name for param in contract.params if isinstance(param, Scalar) and param.upper_bound]
        return 1 << (value - 1).bit_length() if mapping[engine_name] in bounds else value
    sizes = host_sizes(contract, bound)
    if engine_name in sizes:
        return sizes[engine_name]
    named = {alias: bound.get(param.name) for param in contract.tensors for alias in aliases(contract, param.name)}
    if (stride := stride_of(engine_name, named)) is not None:
        return stride
    raise Missing(engine_name)


def stride_of(engine_name: str, tensors: Mapping[str, Any]) -> int | None:
    """Return the stride that a parameter ``<tensor>_stride`` or ``<tensor>_stride_<dim>`` asks for.

    Args:
        engine_name: name of the parameter.
        tensors: tensors by all of their names.

    Returns:
        Elements; None if the name is not that of a stride.
    """
    match = _STRIDE.fullmatch(engine_name)
    if match is None:
        return None
    name = match["tensor"]
    names = (name, f"{name}_ptr", name.lower(), f"{name.lower()}_ptr")
    tensor = next((tensors[n] for n in names if n in tensors), None)
    return None if tensor is None else int(tensor.stride(int(match["dim"] or 0)))


def call_shape(source: str, kernel: str) -> CallShape | None:
    """Return the arguments of ``kernel[grid](...)`` in `source`; None if there is no launch, or it uses * or **."""
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)):
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == kernel):
            continue
        keywords = tuple(k.arg for k in node.keywords if k.arg is not None)
        if len(keywords) == len(node.keywords) and not any(isinstance(a, ast.Starred) for a in node.args):
            return CallShape(len(node.args), keywords)
    return None


def forwarded(parameters: Sequence[str], implementation: Callable[..., object]) -> CallShape:
    """Return the form in which a dispatcher forwards a kernel's arguments.

    They are passed by name if both functions have the same names, else all by position.
    Source: vllm 0.33.0 ``vllm.triton_utils.dispatcher.KernelOverride``.

    Args:
        parameters: names of the kernel's parameters.
        implementation: the function that runs instead of the kernel.
    """
    if tuple(inspect.signature(implementation).parameters) == tuple(parameters):
        return CallShape(0, tuple(parameters))
    return CallShape(len(parameters), ())


def kernels_part(shape: CallShape) -> CallShape:
    """Return `shape` without options such as ``num_warps``, which Triton's launcher keeps for itself."""
    return CallShape(shape.positional, tuple(name for name in shape.keywords if name not in LAUNCH_OPTIONS))


def reject_unsupported_arguments(
    contract: Contract, passed: Mapping[str, Any], bound: Mapping[str, Any], who: str
) -> None:
    """Raise UnsupportedCall if this version of the engine cannot receive a value of the call.

    A tensor that is optional is ruled by a flag and may be dropped; a size, a block size or a flag that is off loses
    nothing.

    Args:
        contract: the op's contract.
        passed: values that the engine will see, by contract name.
        bound: values that the case asks for, by contract name.
        who: the engine's callable, for the message.

    Raises:
        UnsupportedCall: the engine has no such parameter, or launches with another value for these arguments.
    """
    for param in contract.params:
        if not isinstance(param, Scalar) or param.name not in bound or param.tuning or param.axis or param.stride_of:
            continue
        wanted = bound[param.name]
        if param.name not in passed:
            if wanted is False or wanted is None or wanted == param.default:
                continue
            raise UnsupportedCall(f"{who} has no parameter {param.name}, asked for with {wanted!r}")
        got = passed[param.name]
        if param.upper_bound and got >= wanted:
            continue
        if got != wanted:
            raise UnsupportedCall(f"{who} launches with {param.name}={got!r} for these arguments, asked for {wanted!r}")

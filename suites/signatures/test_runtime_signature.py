"""Runtime signatures: the engine's callables in the running process (contract SIG)."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from verispec.cases import case
from verispec.engines import CallShape, Engine, UnsupportedCall
from verispec.engines.protocol.runtime_signature import RuntimeSignature
from verispec.judge import Failure, Inconclusive, Kind, Mismatch, NotOffered, offered
from verispec.reference import contracts
from verispec.reference.contracts import Scalar

OPS = [name for name in contracts.names() if contracts.load(name).params]
REACH = "every launch binds its arguments"
ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@pytest.fixture
def live(engine: Engine, op: str) -> RuntimeSignature:
    """Return the op's callables. A plain function is assumed to be called by its own parameters.

    Raises:
        Inconclusive: it is a wrapper that takes any, which binds whatever its callers pass.
    """
    definitions = offered(engine.definitions())
    if op not in definitions:
        offered(engine.op(op))
        raise NotOffered(f"the engine does not list the callable behind {op}, so its signature is not compared")
    found = definitions[op]
    if isinstance(found, RuntimeSignature):
        return found
    parameters = inspect.signature(found).parameters
    if any(parameter.kind in ANY for parameter in parameters.values()):
        raise Inconclusive(
            f"definitions()[{op!r}] takes any arguments{inspect.signature(found)}, so its signature tells nothing: "
            "return the function that it wraps, or a RuntimeSignature"
        )
    names = tuple(parameters)
    return RuntimeSignature(op, getattr(found, "__qualname__", op), names, found, True, CallShape(0, names))


def fail(live: RuntimeSignature, message: str, **sides: Any) -> None:
    details = {"kernel": render(live.parameters), "implementation": render(implementation_names(live)), **sides}
    raise Mismatch(Failure(Kind.BINDING, f"{live.where}: {message}", details=details))


def render(names: Any) -> str:
    return f"({', '.join(names)})"


def implementation_names(live: RuntimeSignature) -> list[str]:
    return list(inspect.signature(live.implementation).parameters)


def stem(name: str) -> str:
    """Return a parameter's name without the pointer suffix of kernels."""
    return name.removesuffix("_ptr").lower()


def matched(names: Iterable[str], others: Iterable[str]) -> dict[str, str]:
    """Map each of `names` to one of `others`: the same name, else one that differs only in the pointer suffix.

    A kernel may have both ``block_size``, positions, and ``BLOCK_SIZE``, a tile.
    """
    names, others = list(names), list(others)
    free = {stem(other): other for other in others if other not in names}
    found = {name: name if name in others else free.get(stem(name)) for name in names}
    return {name: other for name, other in found.items() if other is not None}


def without_place(live: RuntimeSignature, op: str) -> str:
    """Name the kernel's parameters that the implementation lacks; empty if it has all of them."""
    names = implementation_names(live)
    if any(p.kind in ANY for p in inspect.signature(live.implementation).parameters.values()):
        return ""
    known = matched(live.parameters, names)
    wanted = [name for name, param in contract_parameters(op, live.parameters).items() if not is_tuning(param)]
    placed = live.parameters[: live.shape.positional]
    lost = [n for n in wanted if not (placed.index(n) < len(names) if n in placed else n in known)]
    unknown = [name for name in wanted if name not in known]
    # Callers by position lose the last parameters. If all others have the same names, the names show which are missing.
    missing = unknown if lost and len(unknown) == len(live.parameters) - len(names) else lost
    return f"the implementation has no parameter for {', '.join(missing)}" if missing else ""


@case("SIG-1", op=OPS, reach=REACH)
def test_what_callers_pass_binds(live: RuntimeSignature, op: str) -> None:
    positional, keywords = live.parameters[: live.shape.positional], live.shape.keywords
    try:
        inspect.signature(live.implementation).bind(*positional, **dict.fromkeys(keywords))
    except TypeError as error:
        call = [*positional, *(f"{name}=..." for name in keywords)]
        fail(live, without_place(live, op) or str(error), call=render(call), raises=str(error))


@case("SIG-2", op=OPS, reach=REACH)
def test_the_order_is_the_kernels(live: RuntimeSignature, op: str) -> None:
    """A swap of two parameters of one type raises nothing; only the order shows it."""
    names = implementation_names(live)
    kernel = matched(names, live.parameters)
    for n, name in enumerate(names[: live.shape.positional]):
        place = live.parameters.index(kernel[name]) if name in kernel else n
        if place != n:
            shifted = f"{name} is parameter {n + 1} of the implementation and {place + 1} of the kernel"
            fail(live, without_place(live, op) or shifted, shifted=shifted)


@case("SIG-3", op=OPS, reach="callers launch what they hold")
def test_an_implementation_is_where_callers_look(live: RuntimeSignature, op: str) -> None:
    if not live.runs:
        fail(live, "callers still hold the bare kernel, which does nothing without Triton")


@case("SIG-4", op=OPS, reach=REACH)
def test_every_parameter_can_be_passed(live: RuntimeSignature, op: str) -> None:
    if lacks := without_place(live, op):
        fail(live, lacks)
    known = matched((p.name for p in contracts.load(op).params), live.parameters)
    missing = [p.name for p in contracts.load(op).params if is_mode(p) and p.name not in known]
    if missing:
        raise UnsupportedCall(f"the kernel has no {', '.join(missing)}")


def contract_parameters(op: str, names: Sequence[str]) -> dict[str, Any]:
    """Return the contract's parameter for each of `names`, None if there is none."""
    contract = contracts.load(op)
    known = matched(names, (p.name for p in contract.params))
    return {name: contract.param(known[name]) if name in known else None for name in names}


def is_tuning(param: Any) -> bool:
    return isinstance(param, Scalar) and param.tuning


def is_mode(param: Any) -> bool:
    """Return True for a compile-time flag that changes results."""
    return isinstance(param, Scalar) and param.flag and param.type is bool and not is_tuning(param)


@case("SIG-5", op=OPS)
def test_a_mode_left_out_is_off(live: RuntimeSignature, op: str) -> None:
    params = contract_parameters(op, implementation_names(live))
    for name, p in inspect.signature(live.implementation).parameters.items():
        if is_mode(params[name]) and p.default not in (inspect.Parameter.empty, False, None):
            fail(live, f"{name} is {p.default!r} when it is left out")

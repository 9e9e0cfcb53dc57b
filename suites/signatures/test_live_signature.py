"""Live signatures: the engine's callables as they stand in the running process (contract SIG)."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import pytest

from verispec.cases import case
from verispec.engines import Engine, Unsupported, UnsupportedCall
from verispec.engines.live import Live
from verispec.judge import Failure, Kind, Mismatch
from verispec.reference import contracts
from verispec.reference.contracts import Contract, Scalar

OPS = [name for name in contracts.names() if contracts.load(name).params]
REACH = "every launch binds its arguments"
ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@pytest.fixture
def live(engine: Engine, op: str) -> Live:
    """The op's callables; an engine that gives a plain function is taken to be called by its own parameters."""
    definitions = engine.definitions()
    if isinstance(definitions, Unsupported):
        raise UnsupportedCall(definitions.reason)
    if op not in definitions:
        answer = engine.op(op)
        raise UnsupportedCall(answer.reason if isinstance(answer, Unsupported) else f"no callable of {op} is known")
    found = definitions[op]
    if isinstance(found, Live):
        return found
    names = tuple(inspect.signature(found).parameters)
    return Live(op, getattr(found, "__qualname__", op), names, found, replaced=True, keywords=names)


def fail(live: Live, message: str, **sides: Any) -> None:
    details = {"kernel": render(live.parameters), "implementation": render(implementation_names(live)), **sides}
    raise Mismatch(Failure(Kind.BINDING, f"{live.where}: {message}", details=details))


def render(names: Any) -> str:
    return f"({', '.join(names)})"


def implementation_names(live: Live) -> list[str]:
    return list(inspect.signature(live.implementation).parameters)


def stem(name: str) -> str:
    """A parameter's name without the suffix that kernels give to pointers."""
    return name.removesuffix("_ptr").lower()


def counterpart(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that is meant by `name`: the very same, else that of the same stem.

    A kernel may have both ``block_size``, positions, and ``BLOCK_SIZE``, a tile.
    """
    names = list(names)
    return name if name in names else next((other for other in names if stem(other) == stem(name)), None)


def forwarded_by_position(live: Live) -> bool:
    """A dispatcher passes keywords only when the names are the kernel's own."""
    return live.dispatch is not None and tuple(implementation_names(live)) != live.parameters


def by_position(live: Live, place: int) -> bool:
    """Whether the kernel's parameter at `place` reaches the implementation by its place, whatever its name."""
    return forwarded_by_position(live) if live.dispatch is not None else place < live.positional


@case("SIG-1", op=OPS, reach=REACH)
def test_what_callers_pass_binds(live: Live, op: str) -> None:
    signature = inspect.signature(live.implementation)
    positional: tuple[str, ...] = live.parameters[: live.positional]
    keywords = live.keywords
    if live.dispatch is not None:
        positional, keywords = (live.parameters, ()) if forwarded_by_position(live) else ((), live.parameters)
    try:
        signature.bind(*positional, **dict.fromkeys(keywords))
    except TypeError as error:
        call = [*positional, *(f"{name}=..." for name in keywords)]
        fail(live, str(error), call=render(call))


@case("SIG-2", op=OPS, reach=REACH)
def test_the_order_is_the_kernels(live: Live, op: str) -> None:
    """A swap of two parameters of one type raises nothing: only the order tells."""
    if not forwarded_by_position(live) and not live.positional:
        return
    for n, name in enumerate(implementation_names(live)):
        meant = counterpart(name, live.parameters)
        place = n if meant is None else live.parameters.index(meant)
        if place != n:
            fail(live, f"{name} is parameter {n + 1} of the implementation and {place + 1} of the kernel")


@case("SIG-3", op=OPS, reach="callers launch what they hold")
def test_an_implementation_is_where_callers_look(engine: Engine, live: Live, op: str) -> None:
    triton = engine.describe().details.get("vLLM's HAS_TRITON", "True") == "True"
    if not triton and not live.replaced:
        fail(live, "callers still hold the bare kernel, which does nothing without Triton")


@case("SIG-4", op=OPS, reach=REACH)
def test_every_parameter_can_be_passed(live: Live, op: str) -> None:
    signature = inspect.signature(live.implementation)
    if any(p.kind in ANY for p in signature.parameters.values()):
        return
    contract = contracts.load(op)
    room = len(signature.parameters)
    for n, name in enumerate(live.parameters):
        param = parameter(contract, name)
        tuning = isinstance(param, Scalar) and param.tuning
        known = by_position(live, n) or counterpart(name, signature.parameters)
        if not tuning and (not known or n >= room):
            fail(live, f"the implementation has no parameter for {name}")
    missing = [p.name for p in contract.params if is_mode(p) and not counterpart(p.name, live.parameters)]
    if missing:
        raise UnsupportedCall(f"the kernel has no {', '.join(missing)}")


def parameter(contract: Contract, name: str) -> Any:
    meant = counterpart(name, (p.name for p in contract.params))
    return None if meant is None else contract.param(meant)


def is_mode(param: Any) -> bool:
    """A compile-time switch that changes results."""
    return isinstance(param, Scalar) and param.flag and param.type is bool and not param.tuning


@case("SIG-5", op=OPS)
def test_a_mode_left_out_is_off(live: Live, op: str) -> None:
    contract = contracts.load(op)
    for name, p in inspect.signature(live.implementation).parameters.items():
        if is_mode(parameter(contract, name)) and p.default not in (inspect.Parameter.empty, False, None):
            fail(live, f"{name} is {p.default!r} when it is left out")

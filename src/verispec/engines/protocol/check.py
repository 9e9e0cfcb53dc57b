"""Test an engine against the protocol before its first case, so that an adapter's fault is never a failed clause.

`check` looks at what can be seen without running the engine's code on data: methods, descriptions, the
parameter names of ops, the methods of a sampler. `verispec.engines.protocol.results` checks returned values.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from verispec import exits
from verispec.engines.protocol.engine import PLATFORMS, Description, Engine, Unsupported, UnsupportedCall
from verispec.engines.protocol.kernel_sites import KernelSites
from verispec.errors import VerispecError

if TYPE_CHECKING:
    from verispec.reference.contracts import Contract

CODE = "V-ENG-PROTOCOL"
GUIDE = "docs/reference/engine-protocol.md"

SKELETON: Mapping[str, str] = {
    "describe": "def describe(self) -> Description",
    "op": "def op(self, name: str) -> OpFunction | Unsupported",
    "sampler": 'def sampler(self, family: str = "flat") -> WholeSampler | Unsupported',
    "load": "def load(self, target: Path, **options) -> Generator | Unsupported",
    "definitions": "def definitions(self) -> Mapping[str, RuntimeSignature | OpFunction] | Unsupported",
    "close": "def close(self) -> None",
}
"""The methods of `Engine` as an adapter writes them."""

_CALLS: Mapping[str, tuple[tuple[object, ...], Mapping[str, object]]] = {
    "describe": ((), {}),
    "op": (("expand_batch_to_tokens",), {}),
    "sampler": (("flat",), {}),
    "load": (("target",), {"method": "none", "dtype": "float32"}),
    "definitions": ((), {}),
    "close": ((), {}),
}
"""Calls of each method as the harness makes them."""

SAMPLER_FAMILIES = ("flat", "request_state", "block", "fused")


@dataclass(frozen=True, slots=True)
class ProtocolFault:
    """One place where an engine breaks the protocol.

    Args:
        where: the call, e.g. ``describe()``.
        expected: requirement of the protocol there.
        got: value that the engine has.
        write: source to write instead.
    """

    where: str
    expected: str
    got: str
    write: str

    def __str__(self) -> str:
        return f"{self.where}: expected {self.expected}, got {self.got}"


def check(engine: object, name: str, ops: Collection[Contract] = (), parts: Collection[str] = ()) -> Description:
    """Return the engine's description, or raise for every place where it breaks the protocol.

    Args:
        engine: anything.
        name: name on the command line, for the message.
        ops: contracts of the ops that will be tested.
        parts: optional parts that will be tested too: "sampler", "definitions".

    Raises:
        VerispecError: V-ENG-PROTOCOL, with all faults.
    """
    faults = list(method_faults(engine))
    if not faults:
        assert isinstance(engine, Engine)
        description = engine.describe()
        faults += description_faults(description)
        for contract in ops:
            faults += op_faults(engine, contract)
        if "sampler" in parts:
            faults += sampler_faults(engine)
        if "definitions" in parts:
            faults += definition_faults(engine)
        faults += site_faults(engine)
        if not faults:
            return description
    raise error(faults, f"--engine {name}", type(engine).__name__)


def check_subjects(engine: object, name: str, subjects: Collection[str]) -> Description:
    """Return the engine's description after `check` of the parts that cases of `subjects` need.

    Args:
        engine: anything.
        name: name on the command line.
        subjects: names of ops and of other contracts, such as ``whole_sampler``.
    """
    from verispec.reference import contracts

    known = [contracts.load(subject) for subject in sorted(subjects) if subject in contracts.names()]
    families = {contract.family for contract in known}
    ops = [contract for contract in known if contract.params]
    parts = [part for part, family in (("sampler", "sampler"), ("definitions", "signature")) if family in families]
    return check(engine, name, ops, parts)


def error(faults: Sequence[ProtocolFault], where: str, engine: str) -> VerispecError:
    """Return the error V-ENG-PROTOCOL for all `faults`.

    Args:
        faults: one or more faults.
        where: the option that named the engine.
        engine: name of its class.
    """
    places = "in one place" if len(faults) == 1 else f"in {len(faults)} places"
    return VerispecError(
        CODE,
        f"{engine} breaks the engine protocol {places}",
        where=where,
        cause="\n         ".join(map(str, faults)),
        hint="\n         ".join(["write", *dict.fromkeys(f"  {fault.write}" for fault in faults), f"see {GUIDE}"]),
        exit_code=exits.CANNOT_TELL,
    )


def method_faults(engine: object) -> Iterator[ProtocolFault]:
    """Yield a fault for each method that `engine` lacks, or that cannot be called as the harness calls it."""
    for name, skeleton in SKELETON.items():
        method = getattr(engine, name, None)
        if not callable(method):
            got = "no such attribute" if not hasattr(engine, name) else f"the attribute {shown(method)}"
            yield ProtocolFault(name, "a method", got, skeleton)
            continue
        args, kwargs = _CALLS[name]
        if reason := _cannot_take(method, args, kwargs):
            yield ProtocolFault(name, f"a method called as {_call(name, args, kwargs)}", reason, skeleton)


def description_faults(description: object) -> Iterator[ProtocolFault]:
    """Yield a fault for each field of a description that reports cannot use.

    Args:
        description: the engine's answer to ``describe()``, of any type.
    """
    write = 'return Description("my-engine", "1.0", platform="cpu", device="cpu")'
    if not isinstance(description, Description):
        yield ProtocolFault("describe()", "a verispec.engines.Description", shown(description), write)
        return
    for field in ("name", "version"):
        value = getattr(description, field)
        if not isinstance(value, str) or not value:
            yield ProtocolFault(f"describe().{field}", "a string that is not empty", shown(value), write)
    for field in ("platform", "device"):
        value = getattr(description, field)
        if value not in PLATFORMS:
            yield ProtocolFault(f"describe().{field}", f"one of {', '.join(PLATFORMS)}", shown(value), write)
    details = description.details
    if not isinstance(details, Mapping) or not all(isinstance(x, str) for item in details.items() for x in item):
        yield ProtocolFault("describe().details", "a mapping of strings to strings", shown(details), write)


def op_faults(engine: Engine, contract: Contract) -> Iterator[ProtocolFault]:
    """Yield a fault if an engine's op cannot be called with its parameters by keyword.

    Args:
        engine: an object with the protocol's methods; `Unsupported` is not a fault.
        contract: the op's contract.
    """
    where, names = f"op({contract.name!r})", [param.name for param in contract.params]
    write = f"def {contract.name}({', '.join(names)})"
    function, raised = _answer(lambda: engine.op(contract.name))
    if raised:
        yield ProtocolFault(where, "a function or Unsupported(reason)", raised, 'return Unsupported("no such op")')
    elif isinstance(function, Unsupported):
        return
    elif not callable(function):
        got = shown(function)
        yield ProtocolFault(where, "a function or Unsupported(reason)", got, 'return Unsupported("no such op")')
    elif reason := _cannot_take(function, (), dict.fromkeys(names)):
        yield ProtocolFault(where, f"a function of the keywords {', '.join(names)}", reason, write)


def sampler_faults(engine: Engine) -> Iterator[ProtocolFault]:
    """Yield a fault for each sampler of `engine` that cannot be called, or whose optional method is not a method."""
    for family in SAMPLER_FAMILIES:
        where = f"sampler({family!r})"
        sampler, raised = _answer(partial(engine.sampler, family))
        expected, write = "a sampler or Unsupported(reason)", "def __call__(self, batch: SamplerBatch)"
        if isinstance(sampler, Unsupported):
            continue
        if raised or not callable(sampler):
            yield ProtocolFault(where, expected, raised or shown(sampler), f"{write} -> list[list[int]]")
            continue
        if isinstance(sampler, type):
            got = f"the class {sampler.__name__}"
            yield ProtocolFault(where, "an object that is called with a batch", got, f"return {sampler.__name__}(...)")
            continue
        for method, arguments, skeleton in (
            ("__call__", ("batch",), f"{write} -> list[list[int]]"),
            ("trace", ("batch",), "def trace(self, batch: SamplerBatch) -> Trace"),
            ("draft_and_verify", ("batch", "draft_logits"), "def draft_and_verify(self, batch, draft_logits)"),
        ):
            found = sampler if method == "__call__" else getattr(sampler, method, None)
            if found is None:
                continue
            reason = _cannot_take(found, arguments, {}) if callable(found) else f"the attribute {shown(found)}"
            if reason:
                called = f"{method}({', '.join(arguments)})"
                yield ProtocolFault(f"{where}.{method}", f"a method called as {called}", reason, skeleton)


def definition_faults(engine: Engine) -> Iterator[ProtocolFault]:
    """Yield a fault if the `definitions` of `engine` are not a mapping of op names to callables."""
    from verispec.engines.protocol.runtime_signature import RuntimeSignature

    found, raised = _answer(engine.definitions)
    write = 'return {"expand_batch_to_tokens": expand_batch_to_tokens}'
    if isinstance(found, Unsupported):
        return
    if raised or not isinstance(found, Mapping):
        yield ProtocolFault("definitions()", "a mapping or Unsupported(reason)", raised or shown(found), write)
        return
    for op, value in found.items():
        if not isinstance(value, RuntimeSignature) and not callable(value):
            expected = "a function or RuntimeSignature"
            yield ProtocolFault(f"definitions()[{op!r}]", expected, shown(value), write)


def site_faults(engine: Engine) -> Iterator[ProtocolFault]:
    """Yield a fault if the optional `kernel_sites` of `engine` is not a mapping of op names to ``module:attr``."""
    if not isinstance(engine, KernelSites):
        return
    sites, raised = _answer(engine.kernel_sites)
    write = 'return {"expand_batch_to_tokens": "my_package.kernels:expand"}'
    if raised or not isinstance(sites, Mapping):
        yield ProtocolFault("kernel_sites()", "a mapping of op names", raised or shown(sites), write)
        return
    for op, place in sites.items():
        if not isinstance(place, str) or not all(place.partition(":")):
            yield ProtocolFault(f"kernel_sites()[{op!r}]", "'module:attr'", shown(place), write)


def _answer(call: Callable[[], object]) -> tuple[object, str]:
    """Return (answer, ""), or (None, text of the exception); an UnsupportedCall is an answer."""
    try:
        return call(), ""
    except UnsupportedCall as refusal:
        return Unsupported(refusal.reason), ""
    except VerispecError:
        raise
    except Exception as raised:
        return None, f"{type(raised).__name__}: {raised}"


def _cannot_take(function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    """Return why `function` cannot be called with these arguments; empty if it can, or if Python cannot tell."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as reason:
        names = [p.name for p in signature.parameters.values()]
        unknown = [name for name in kwargs if name not in names]
        missing = [
            p.name
            for p in signature.parameters.values()
            if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in kwargs
        ]
        near = [(n, m[0]) for n in missing if (m := difflib.get_close_matches(n, unknown, n=1))] if kwargs else []
        renamed = "".join(f"; rename {theirs} to {ours}" for theirs, ours in near)
        return f"{getattr(function, '__name__', 'a callable')}{signature}: {reason}{renamed}"
    return ""


def _call(name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    return f"{name}({', '.join([*map(repr, args), *(f'{k}={v!r}' for k, v in kwargs.items())])})"


def shown(value: object) -> str:
    """Return the type and the beginning of the text of a value, for messages."""
    text = repr(value)
    return f"{type(value).__name__} {text[:80] + '...' * (len(text) > 80)}" if value is not None else "None"

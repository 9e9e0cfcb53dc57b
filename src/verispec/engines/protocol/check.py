"""Test an engine against the protocol before its first case, so that an adapter's fault is never a failed clause.

`check` looks at what can be seen without running the engine's code on data: methods, descriptions, the
parameter names of ops, the methods of a sampler. `require_tokens` and `require_trace` test what a sampler returned.
"""

from __future__ import annotations

import difflib
import inspect
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from verispec import exits
from verispec.engines.protocol.engine import PLATFORMS, Description, Engine, Unsupported, UnsupportedCall
from verispec.engines.protocol.generation import (
    FinishReason,
    GenerationResult,
    SpeculationMetrics,
    SpeculativeStep,
    TokenKind,
    TokenLogprobs,
)
from verispec.engines.protocol.kernel_sites import KernelSites
from verispec.engines.protocol.sampling import DraftedTokens, ProcessedTokens, RequestContext, SamplerBatch, Trace
from verispec.errors import VerispecError

if TYPE_CHECKING:
    from verispec.reference.contracts import Contract

T = TypeVar("T")
Member = TypeVar("Member", bound=StrEnum)

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


class ProtocolError(Exception):
    """A value that an engine returned to a case breaks the protocol: the adapter's fault, and no failed clause."""


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
            got = "no such attribute" if not hasattr(engine, name) else f"the attribute {_shown(method)}"
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
        yield ProtocolFault("describe()", "a verispec.engines.Description", _shown(description), write)
        return
    for field in ("name", "version"):
        value = getattr(description, field)
        if not isinstance(value, str) or not value:
            yield ProtocolFault(f"describe().{field}", "a string that is not empty", _shown(value), write)
    for field in ("platform", "device"):
        value = getattr(description, field)
        if value not in PLATFORMS:
            yield ProtocolFault(f"describe().{field}", f"one of {', '.join(PLATFORMS)}", _shown(value), write)
    details = description.details
    if not isinstance(details, Mapping) or not all(isinstance(x, str) for item in details.items() for x in item):
        yield ProtocolFault("describe().details", "a mapping of strings to strings", _shown(details), write)


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
        got = _shown(function)
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
            yield ProtocolFault(where, expected, raised or _shown(sampler), f"{write} -> list[list[int]]")
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
            reason = _cannot_take(found, arguments, {}) if callable(found) else f"the attribute {_shown(found)}"
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
        yield ProtocolFault("definitions()", "a mapping or Unsupported(reason)", raised or _shown(found), write)
        return
    for op, value in found.items():
        if not isinstance(value, RuntimeSignature) and not callable(value):
            expected = "a function or RuntimeSignature"
            yield ProtocolFault(f"definitions()[{op!r}]", expected, _shown(value), write)


def site_faults(engine: Engine) -> Iterator[ProtocolFault]:
    """Yield a fault if the optional `kernel_sites` of `engine` is not a mapping of op names to ``module:attr``."""
    if not isinstance(engine, KernelSites):
        return
    sites, raised = _answer(engine.kernel_sites)
    write = 'return {"expand_batch_to_tokens": "my_package.kernels:expand"}'
    if raised or not isinstance(sites, Mapping):
        yield ProtocolFault("kernel_sites()", "a mapping of op names", raised or _shown(sites), write)
        return
    for op, place in sites.items():
        if not isinstance(place, str) or not all(place.partition(":")):
            yield ProtocolFault(f"kernel_sites()[{op!r}]", "'module:attr'", _shown(place), write)


def require_sequence(answer: object, where: str) -> list[Any]:
    """Return an op's answer, a list, tuple, array or tensor, as a list.

    Args:
        answer: the engine's answer.
        where: the call, for the message.

    Raises:
        ProtocolError: the answer is anything else.
    """
    found = _list(answer)
    if found is None:
        raise ProtocolError(f"{CODE} {where}: expected a list of numbers, got {_shown(answer)}")
    return found


def require_tokens(answer: object, batch: SamplerBatch, where: str = "sampler(batch)") -> list[list[int]]:
    """Return a sampler's answer as lists of plain integers.

    Args:
        answer: the engine's answer.
        batch: the sampled batch.
        where: the call, for the message.

    Returns:
        One list per request.

    Raises:
        ProtocolError: the answer is not one sequence of integers per request.
    """
    rows = _list(answer)
    requests = len(batch.draft_token_ids)
    if rows is None or len(rows) != requests:
        got = _shown(answer) if rows is None else f"{len(rows)} rows for {requests} requests"
        raise ProtocolError(f"{CODE} {where}: expected a list of {requests} lists of token ids, got {got}")
    tokens: list[list[int]] = []
    for b, (row, drafts) in enumerate(zip(rows, batch.counts, strict=True)):
        ids = _list(row)
        is_plain = ids is not None and set(map(type, ids)) <= {int}
        if ids is None or not (is_plain or all(map(_is_int, ids))):
            raise ProtocolError(f"{CODE} {where}[{b}]: expected a list of token ids, got {_shown(row)}")
        if len(ids) > drafts + 1 and set(ids[drafts + 1 :]) == {-1}:
            wanted = f"the 1 to {drafts + 1} emitted tokens of a request with {drafts} drafts, without padding"
            raise ProtocolError(f"{CODE} {where}[{b}]: expected {wanted}, got {_shown(row)}")
        tokens.append(ids if is_plain else list(map(int, ids)))
    return tokens


def require_results(answer: object, where: str = "generate(requests)") -> list[GenerationResult]:
    """Return a generator's results with plain tokens; whether there is one for each request is left to the case.

    The results are copies: a generator may write later ones into the lists of these.

    Fields may have lists, arrays and tensors for tuples, and plain words for members of enumerations.

    Args:
        answer: the engine's answer.
        where: the call, for the message.

    Raises:
        ProtocolError: the answer is not a sequence of results, or a field of one has another type.
    """
    results = _list(answer)
    if results is None:
        raise ProtocolError(f"{CODE} {where}: expected a list of GenerationResult, got {_shown(answer)}")
    return [_plain_result(result, f"{where}[{index}]") for index, result in enumerate(results)]


def require_metrics(answer: object) -> SpeculationMetrics:
    """Return a generator's counts.

    Raises:
        ProtocolError: they are of another type.
    """
    return _typed(answer, SpeculationMetrics, "metrics()", "a SpeculationMetrics")


def _plain_result(result: object, where: str) -> GenerationResult:
    """Return a result whose fields have the types of the protocol: tuples, plain integers, members of enumerations.

    Raises:
        ProtocolError: a field has a type that stands for no such value.
    """
    found = _typed(result, GenerationResult, where, "a GenerationResult")
    token_ids = _items(found.token_ids, f"{where}.token_ids", "token ids")
    if not set(map(type, token_ids)) <= {int}:
        if not all(map(_is_int, token_ids)):
            raise ProtocolError(f"{CODE} {where}.token_ids: expected token ids, got {_shown(found.token_ids)}")
        token_ids = tuple(map(int, token_ids))
    rows: dict[str, Any] = {}
    for name, kind in (("steps", SpeculativeStep), ("logprobs", TokenLogprobs), ("prompt_logprobs", TokenLogprobs)):
        rows[name] = _items(getattr(found, name), f"{where}.{name}", f"verispec.engines.{kind.__name__}")
        for place, row in enumerate(rows[name]):
            if not isinstance(row, kind) and not (row is None and name == "prompt_logprobs"):
                _typed(row, kind, f"{where}.{name}[{place}]", f"verispec.engines.{kind.__name__}")
    samples = _items(found.samples, f"{where}.samples", "a tuple of GenerationResult")
    return replace(
        found,
        token_ids=token_ids,
        finish_reason=_member(found.finish_reason, FinishReason, f"{where}.finish_reason"),
        kinds=tuple(_member(kind, TokenKind, f"{where}.kinds") for kind in _items(found.kinds, where, "kinds")),
        text=_typed(found.text, str, f"{where}.text", "str"),
        samples=tuple(_plain_result(sample, f"{where}.samples[{place}]") for place, sample in enumerate(samples)),
        **rows,
    )


def _typed(value: object, kind: type[T], where: str, expected: str) -> T:
    if not isinstance(value, kind):
        raise ProtocolError(f"{CODE} {where}: expected {expected}, got {_shown(value)}")
    return value


def _items(value: object, where: str, expected: str) -> tuple[Any, ...]:
    if type(value) is tuple:
        return value
    found = _list(value)
    if found is None:
        raise ProtocolError(f"{CODE} {where}: expected {expected}, got {_shown(value)}")
    return tuple(found)


def _member(value: Any, kind: type[Member], where: str) -> Member:
    """Return a member of an enumeration; its plain value stands for it."""
    if isinstance(value, kind):
        return value
    try:
        return kind(value)
    except ValueError:
        expected = f"verispec.engines.{kind.__name__}"
        raise ProtocolError(f"{CODE} {where}: expected {expected}, got {_shown(value)}") from None


def require_trace(answer: object, batch: SamplerBatch) -> Trace:
    """Return a sampler's trace with plain tokens.

    Args:
        answer: the engine's answer.
        batch: the sampled batch.

    Raises:
        ProtocolError: the answer does not have the shapes that `Draws` asks for.
    """
    if not isinstance(answer, Trace):
        raise ProtocolError(f"{CODE} trace(batch): expected a verispec.engines.Trace, got {_shown(answer)}")
    tokens = require_tokens(answer.tokens, batch, "trace(batch).tokens")
    if len(answer.draws) != len(tokens):
        raise ProtocolError(f"{CODE} trace(batch).draws: expected {len(tokens)} entries, got {len(answer.draws)}")
    for b, (draws, count) in enumerate(zip(answer.draws, batch.counts, strict=True)):
        for field, size in (("uniform", count), ("noise", batch.vocab_size)):
            values = getattr(draws, field, None)
            if draws is not None and (values is None or tuple(values.shape) != (size,)):
                got = tuple(values.shape) if values is not None else _shown(draws)
                raise ProtocolError(f"{CODE} trace(batch).draws[{b}].{field}: expected shape ({size},), got {got}")
    return Trace(tokens, list(answer.draws))


def require_drafted(answer: object, batch: SamplerBatch) -> DraftedTokens:
    """Return a sampler's draft tokens and emitted tokens as plain integers.

    Args:
        answer: the engine's answer.
        batch: the sampled batch.

    Raises:
        ProtocolError: the answer does not have as many draft tokens as the batch asks for.
    """
    where = "draft_and_verify(batch, draft_logits)"
    if not isinstance(answer, DraftedTokens):
        raise ProtocolError(f"{CODE} {where}: expected a verispec.engines.DraftedTokens, got {_shown(answer)}")
    drafted = require_tokens(answer.draft_token_ids, batch, f"{where}.draft_token_ids")
    if [len(ids) for ids in drafted] != batch.counts:
        got = [len(ids) for ids in drafted]
        raise ProtocolError(f"{CODE} {where}.draft_token_ids: expected {batch.counts} tokens per request, got {got}")
    return DraftedTokens(drafted, require_tokens(answer.tokens, batch, f"{where}.tokens"))


def require_processed(
    answer: object, batch: SamplerBatch, contexts: Sequence[RequestContext], where: str = "process_and_verify(...)"
) -> ProcessedTokens:
    """Return processed tokens.

    Args:
        answer: the engine's answer.
        batch: the sampled batch.
        contexts: one per request.
        where: the call, for messages.

    Raises:
        ProtocolError: V-ENG-PROTOCOL, there is another number of lists than of requests, the answer or an entry has
            another type, or `require_tokens` rejects the tokens.
    """
    if not isinstance(answer, ProcessedTokens):
        raise ProtocolError(f"{CODE} {where}: expected a verispec.engines.ProcessedTokens, got {_shown(answer)}")
    tokens = require_tokens(answer.tokens, batch, f"{where}.tokens")
    rows = [list(row) for row in answer.logprobs]
    if len(rows) != len(contexts):
        raise ProtocolError(
            f"{CODE} {where}.logprobs: expected {len(contexts)} lists, one per request, got {len(rows)}"
        )
    strangers = [entry for row in rows for entry in row if not isinstance(entry, TokenLogprobs)]
    if strangers:
        raise ProtocolError(f"{CODE} {where}.logprobs: expected TokenLogprobs, got {_shown(strangers[0])}")
    return ProcessedTokens(tokens, rows)


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


def _list(value: object) -> list[Any] | None:
    """Return a list, tuple, array or tensor as a list; None for anything else."""
    if isinstance(value, list | tuple):
        return list(value)
    to_list = getattr(value, "tolist", None)
    found = to_list() if callable(to_list) else None
    return found if isinstance(found, list) else None


def _is_int(value: object) -> bool:
    """Return True for an integer of Python, NumPy or torch: flags are none, nor are tensors of numbers with a point."""
    if type(value) is int:
        return True
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return False
    try:  # tensors of any dtype have the method, and so have NumPy's flags
        return type(operator.index(value)) is int and "bool" not in str(getattr(value, "dtype", ""))
    except TypeError:
        return False


def _shown(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text[:80] + '...' * (len(text) > 80)}" if value is not None else "None"

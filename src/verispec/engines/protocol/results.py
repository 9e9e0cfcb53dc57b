"""Check the values that an engine's samplers, ops and generators return to a case, and make them plain.

A value of a wrong type is the adapter's fault: it raises `ProtocolError`, which makes the case an ``error``.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from verispec.engines.protocol.check import CODE, shown
from verispec.engines.protocol.generation import (
    FinishReason,
    GenerationResult,
    SpeculationMetrics,
    SpeculativeStep,
    TokenKind,
    TokenLogprobs,
)
from verispec.engines.protocol.sampling import (
    DraftedTokens,
    Draws,
    ProcessedTokens,
    RequestContext,
    SamplerBatch,
    Trace,
)

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
Member = TypeVar("Member", bound=StrEnum)


class ProtocolError(Exception):
    """A value that an engine returned to a case breaks the protocol: the adapter's fault, and no failed clause."""


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
        raise ProtocolError(f"{CODE} {where}: expected a list of numbers, got {shown(answer)}")
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
        got = shown(answer) if rows is None else f"{len(rows)} rows for {requests} requests"
        raise ProtocolError(f"{CODE} {where}: expected a list of {requests} lists of token ids, got {got}")
    tokens: list[list[int]] = []
    for b, (row, drafts) in enumerate(zip(rows, batch.counts, strict=True)):
        ids = _list(row)
        is_plain = ids is not None and set(map(type, ids)) <= {int}
        if ids is None or not (is_plain or all(map(_is_int, ids))):
            raise ProtocolError(f"{CODE} {where}[{b}]: expected a list of token ids, got {shown(row)}")
        if len(ids) > drafts + 1 and set(ids[drafts + 1 :]) == {-1}:
            wanted = f"the 1 to {drafts + 1} emitted tokens of a request with {drafts} drafts, without padding"
            raise ProtocolError(f"{CODE} {where}[{b}]: expected {wanted}, got {shown(row)}")
        tokens.append(ids if is_plain else list(map(int, ids)))
    return tokens


def require_results(answer: object) -> list[GenerationResult]:
    """Return copies of a generator's results, with plain tokens; the case checks how many there are.

    They are copies because a generator may write later results into the same lists.

    Fields may have lists, arrays and tensors for tuples, and plain words for members of enumerations.

    Args:
        answer: the engine's answer.

    Raises:
        ProtocolError: the answer is not a sequence of results, or a field of one has another type.
    """
    results, where = _list(answer), "generate(requests)"
    if results is None:
        raise ProtocolError(f"{CODE} {where}: expected a list of GenerationResult, got {shown(answer)}")
    return [_plain_result(result, f"{where}[{index}]") for index, result in enumerate(results)]


def require_emission(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[int, list[int], list[TokenKind]]:
    """Return index, tokens and kinds of a generator's call of `on_emit`.

    Args:
        arguments: positional arguments of the call.
        named: its keyword arguments.

    Raises:
        ProtocolError: the call is not of the form of `OnEmit`.
    """
    where = "on_emit(index, tokens, kinds)"
    try:
        index, tokens, kinds = _emission(*arguments, **named)
    except TypeError:
        given = ", ".join([*map(repr, arguments), *(f"{name}={value!r}" for name, value in named.items())])
        message = (
            f"{CODE} {where}: expected a request's index, its new tokens and their kinds or (), got on_emit({given})"
        )
        raise ProtocolError(message) from None
    if not _is_int(index):
        raise ProtocolError(f"{CODE} {where}: expected the index of a request, got {shown(index)}")
    ids = _items(tokens, where, "new token ids")
    if not all(map(_is_int, ids)):
        raise ProtocolError(f"{CODE} {where}: expected new token ids, got {shown(tokens)}")
    members = [_member(kind, TokenKind, where) for kind in _items(kinds, where, "kinds of tokens, or ()")]
    return int(index), list(map(int, ids)), members


def _emission(index: Any, tokens: Any, kinds: Any) -> tuple[Any, Any, Any]:
    return index, tokens, kinds


def require_metrics(answer: object) -> SpeculationMetrics:
    """Return a generator's counts.

    Raises:
        ProtocolError: they are of another type.
    """
    return _typed(answer, SpeculationMetrics, "metrics()", "a SpeculationMetrics")


def require_trace(answer: object, batch: SamplerBatch) -> Trace:
    """Return a sampler's trace with plain tokens.

    Args:
        answer: the engine's answer.
        batch: the sampled batch.

    Raises:
        ProtocolError: the answer does not have the shapes that `Draws` asks for, or a value is no random sample.
    """
    if not isinstance(answer, Trace):
        raise ProtocolError(f"{CODE} trace(batch): expected a verispec.engines.Trace, got {shown(answer)}")
    tokens = require_tokens(answer.tokens, batch, "trace(batch).tokens")
    entries = list(_items(answer.draws, "trace(batch).draws", "a list of Draws and None"))
    if len(entries) != len(tokens):
        raise ProtocolError(f"{CODE} trace(batch).draws: expected {len(tokens)} entries, got {len(entries)}")
    for b, (draws, count) in enumerate(zip(entries, batch.counts, strict=True)):
        if draws is None:
            continue
        where = f"trace(batch).draws[{b}]"
        if not isinstance(draws, Draws):
            raise ProtocolError(f"{CODE} {where}: expected a verispec.engines.Draws or None, got {shown(draws)}")
        uniform = _samples(draws.uniform, f"{where}.uniform", count, "from 0 to 1", 1.0)
        noise = _samples(draws.noise, f"{where}.noise", batch.vocab_size, "of at least 0")
        entries[b] = replace(draws, uniform=uniform, noise=noise)
    return Trace(tokens, entries)


def _samples(values: object, where: str, size: int, wanted: str, upper: float = float("inf")) -> torch.Tensor:
    """Return random samples as a tensor.

    Args:
        values: a tensor, an array or a list.
        where: their name, for the message.
        size: number of samples.
        wanted: the numbers that they may be, for the message.
        upper: the largest of these; the smallest is 0.

    Raises:
        ProtocolError: they have another shape or dtype, or one is another number, NaN included.
    """
    import torch

    try:
        found = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise ProtocolError(
            f"{CODE} {where}: expected a tensor of floating-point numbers, got {shown(values)}"
        ) from None
    if tuple(found.shape) != (size,):
        raise ProtocolError(f"{CODE} {where}: expected shape ({size},), got {tuple(found.shape)}")
    if not found.dtype.is_floating_point:
        raise ProtocolError(f"{CODE} {where}: expected numbers of a floating dtype, got {found.dtype}")
    wrong = ((found >= 0) & (found <= upper)).logical_not_()
    if wrong.any():
        place = int(wrong.nonzero()[0])
        raise ProtocolError(f"{CODE} {where}: expected numbers {wanted}, got {float(found[place])} at place {place}")
    return found


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
        raise ProtocolError(f"{CODE} {where}: expected a verispec.engines.DraftedTokens, got {shown(answer)}")
    drafted = require_tokens(answer.draft_token_ids, batch, f"{where}.draft_token_ids")
    if [len(ids) for ids in drafted] != batch.counts:
        got = [len(ids) for ids in drafted]
        raise ProtocolError(f"{CODE} {where}.draft_token_ids: expected {batch.counts} tokens per request, got {got}")
    return DraftedTokens(drafted, require_tokens(answer.tokens, batch, f"{where}.tokens"))


def require_processed(answer: object, batch: SamplerBatch, contexts: Sequence[RequestContext]) -> ProcessedTokens:
    """Return processed tokens.

    Args:
        answer: the engine's answer.
        batch: the sampled batch.
        contexts: one per request.

    Raises:
        ProtocolError: V-ENG-PROTOCOL, there is another number of lists than of requests, the answer or an entry has
            another type, or `require_tokens` rejects the tokens.
    """
    where = "process_and_verify(...)"
    if not isinstance(answer, ProcessedTokens):
        raise ProtocolError(f"{CODE} {where}: expected a verispec.engines.ProcessedTokens, got {shown(answer)}")
    tokens = require_tokens(answer.tokens, batch, f"{where}.tokens")
    where, expected = f"{where}.logprobs", "a list of TokenLogprobs"
    rows = [
        list(_items(row, f"{where}[{b}]", expected))
        for b, row in enumerate(_items(answer.logprobs, where, f"{expected} per request"))
    ]
    if len(rows) != len(contexts):
        raise ProtocolError(f"{CODE} {where}: expected {len(contexts)} lists, one per request, got {len(rows)}")
    strangers = [entry for row in rows for entry in row if not isinstance(entry, TokenLogprobs)]
    if strangers:
        raise ProtocolError(f"{CODE} {where}: expected TokenLogprobs, got {shown(strangers[0])}")
    return ProcessedTokens(tokens, rows)


def _plain_result(result: object, where: str) -> GenerationResult:
    """Return a result whose fields have the types of the protocol: tuples, plain integers, members of enumerations.

    Raises:
        ProtocolError: a field has a type that none of these can be made from.
    """
    found = _typed(result, GenerationResult, where, "a GenerationResult")
    token_ids = _items(found.token_ids, f"{where}.token_ids", "token ids")
    if not set(map(type, token_ids)) <= {int}:
        if not all(map(_is_int, token_ids)):
            raise ProtocolError(f"{CODE} {where}.token_ids: expected token ids, got {shown(found.token_ids)}")
        token_ids = tuple(map(int, token_ids))
    rows: dict[str, Any] = {}
    for name, kind in (("steps", SpeculativeStep), ("logprobs", TokenLogprobs), ("prompt_logprobs", TokenLogprobs)):
        rows[name] = _items(getattr(found, name), f"{where}.{name}", f"verispec.engines.{kind.__name__}")
        for place, row in enumerate(rows[name]):
            if not isinstance(row, kind) and not (row is None and name == "prompt_logprobs"):
                _typed(row, kind, f"{where}.{name}[{place}]", f"verispec.engines.{kind.__name__}")
    kinds = _items(found.kinds, f"{where}.kinds", "verispec.engines.TokenKind")
    samples = _items(found.samples, f"{where}.samples", "a tuple of GenerationResult")
    return replace(
        found,
        token_ids=token_ids,
        finish_reason=_member(found.finish_reason, FinishReason, f"{where}.finish_reason"),
        kinds=tuple(_member(kind, TokenKind, f"{where}.kinds") for kind in kinds),
        text=_typed(found.text, str, f"{where}.text", "str"),
        samples=tuple(_plain_result(sample, f"{where}.samples[{place}]") for place, sample in enumerate(samples)),
        **rows,
    )


def _typed(value: object, kind: type[T], where: str, expected: str) -> T:
    if not isinstance(value, kind):
        raise ProtocolError(f"{CODE} {where}: expected {expected}, got {shown(value)}")
    return value


def _items(value: object, where: str, expected: str) -> tuple[Any, ...]:
    if type(value) is tuple:
        return value
    found = _list(value)
    if found is None:
        raise ProtocolError(f"{CODE} {where}: expected {expected}, got {shown(value)}")
    return tuple(found)


def _member(value: Any, kind: type[Member], where: str) -> Member:
    """Return a member of an enumeration; its plain value stands for it."""
    if isinstance(value, kind):
        return value
    try:
        return kind(value)
    except ValueError:
        expected = f"verispec.engines.{kind.__name__}"
        raise ProtocolError(f"{CODE} {where}: expected {expected}, got {shown(value)}") from None


def _list(value: object) -> list[Any] | None:
    """Return a list, tuple, array or tensor as a list; None for anything else."""
    if isinstance(value, list | tuple):
        return list(value)
    to_list = getattr(value, "tolist", None)
    found = to_list() if callable(to_list) else None
    return found if isinstance(found, list) else None


def _is_int(value: object) -> bool:
    """Return True for an integer of Python, NumPy or torch, and False for booleans and floats in their tensors."""
    if type(value) is int:
        return True
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return False
    try:  # a tensor of any dtype has the method, and so does NumPy's bool
        return type(operator.index(value)) is int and "bool" not in str(getattr(value, "dtype", ""))
    except TypeError:
        return False

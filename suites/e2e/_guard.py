"""Generators and servers whose exceptions are findings.

A generator that raised is not used again: its state could spoil the next case. A server goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    Generator,
    OnEmit,
    SpeculationMetrics,
    TokenKind,
)
from verispec.engines.protocol.results import ProtocolError, require_emission, require_metrics, require_results
from verispec.engines.protocol.serving import Answer, Server
from verispec.errors import VerispecError
from verispec.judge import Failure, Kind, Mismatch, copied_request, failed_call
from verispec.reference.contracts.generation import STREAMED
from verispec.run.record import FAULT

Announce = Callable[[Sequence[tuple[Sequence[int], Sequence[int]]]], None]


class GuardedGenerator:
    """A generator whose exceptions and unknown tokens fail the case. Clear refusals pass through.

    `broken` is True once it raised.

    Args:
        generator: the engine's.
        vocab_size: number of tokens of its target.
        announce: function that receives prompts and tokens of all results of a call, for who checks them.
    """

    def __init__(self, generator: Generator, vocab_size: int, announce: Announce | None = None) -> None:
        self._generator = generator
        self._vocab_size = vocab_size
        self._announce = announce
        self.broken = False
        self.requests: tuple[GenerationRequest, ...] = ()
        """Requests of the last call, for `verispec.saved_calls`."""

    def generate(self, requests: Sequence[GenerationRequest], on_emit: OnEmit | None = None) -> list[GenerationResult]:
        """Generate with copies of `requests`; check these, the number of results and the tokens that callers hear."""
        given = list(map(copied_request, requests))
        self.requests = tuple(requests)
        told: dict[int, list[int]] = {}
        called: dict[int, list[TokenKind]] = {}

        faults: list[ProtocolError] = []

        def listen(*arguments: Any, **named: Any) -> None:
            try:
                index, tokens, kinds = require_emission(arguments, named)
            except ProtocolError as fault:
                faults.append(fault)
                raise
            told.setdefault(index, []).extend(tokens)
            called.setdefault(index, []).extend(kinds)
            if on_emit is not None:
                on_emit(index, tokens, kinds)

        try:
            results = require_results(self._generator.generate(given, listen))
        except (UnsupportedCall, VerispecError, ProtocolError):
            raise
        except Exception as error:
            self.broken = True
            raise faults[0] if faults else failed_call(error) from error  # the engine may have wrapped it
        if faults:  # the engine may have caught it
            raise faults[0]
        require_all(results, requests, "result")
        check_begun(requests, results)
        if given != list(requests):
            raise Mismatch(Failure(Kind.INPUT_CHANGED, "the engine changed the requests that it was given"))
        check_told(told, called, given, results)
        check_known(results, self._vocab_size)
        check_kinds(results)
        if self._announce is not None:
            pairs = zip(requests, results, strict=False)
            self._announce([(request.prompt_token_ids, result.token_ids) for request, result in pairs])
        return results

    def metrics(self) -> SpeculationMetrics:
        """Return the engine's counts."""
        return require_metrics(self._generator.metrics())

    def close(self) -> None:
        """Close the engine's generator."""
        self._generator.close()


class GuardedServer:
    """`server`, whose lost or malformed answers fail the case; a refused connection leaves it undecided."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def ask(self, requests: Sequence[GenerationRequest], *, stream: bool = False) -> list[Answer]:
        """Send all requests at once; see `verispec.engines.protocol.serving.Server`."""
        answers = _guarded(lambda: self._server.ask(requests, stream=stream))
        require_all(answers, requests, "answer")
        return answers

    def post(self, body: bytes | Mapping[str, Any]) -> tuple[int, str]:
        """Send `body` and return status and text."""
        return _guarded(lambda: self._server.post(body))


T = TypeVar("T")


def _guarded(call: Callable[[], T]) -> T:
    try:
        return call()
    except (UnsupportedCall, VerispecError):
        raise
    except Exception as error:
        raise failed_call(error) from error


def require_all(answers: Sequence[object], requests: Sequence[GenerationRequest], what: str) -> None:
    """Check that there is one answer per request: a loop over both would end with the shorter one."""
    if len(answers) != len(requests):
        lost = (
            f"{len(answers)} {what}{'s' * (len(answers) != 1)} for {len(requests)} request{'s' * (len(requests) != 1)}"
        )
        raise Mismatch(Failure(Kind.VALUE, lost, details={FAULT: LOST}))


LOST, EMPTY = "the number of results is not that of requests", "results without a token"
"""Faults whatever the case is about."""


def check_begun(requests: Sequence[GenerationRequest], results: Sequence[GenerationResult]) -> None:
    """Check that no request ended before its first token: many a check of each token holds for none.

    Raises:
        Mismatch: a result has no token, and its caller aborted nothing.
    """
    for index, (request, result) in enumerate(zip(requests, results, strict=True)):
        for each in (result, *result.samples):
            reason = each.finish_reason
            if not each.token_ids and (reason is not FinishReason.ABORT or request.abort_after is None):
                message = f"request {index} ended by {ENDS[reason]} without a token"
                raise Mismatch(Failure(Kind.VALUE, message, details={FAULT: EMPTY}))


ENDS = {
    FinishReason.LENGTH: "its length",
    FinishReason.STOP: "a stop token or string",
    FinishReason.ABORT: "an abort of the engine's own",
}
"""Ends of a request in words."""


def check_told(
    told: Mapping[int, Sequence[int]],
    called: Mapping[int, Sequence[TokenKind]],
    requests: Sequence[GenerationRequest],
    results: Sequence[GenerationResult],
) -> None:
    """Check that the tokens of each request's `on_emit` calls, and their kinds, are those of its result.

    Args:
        told: tokens of all calls by request; an engine that streams nothing has none at all.
        called: kinds of all calls by request; an engine that reports none has none.
        requests: those with several samples are left out, since the calls do not name the sample.
        results: one per request.
    """
    for index, tokens in told.items():
        if not 0 <= index < len(requests):
            raise Mismatch(Failure(Kind.VALUE, f"on_emit named request {index} of {len(requests)}"))
        own = results[index].token_ids
        if requests[index].n == 1 and tuple(tokens) != own:
            raise _streamed(f"request {index} has the tokens {list(own)}, its caller was told {list(tokens)}")
        kinds, streamed = results[index].kinds, tuple(called[index])
        if requests[index].n == 1 and kinds and streamed and streamed != kinds:
            message = f"the caller of request {index} was told {len(streamed)} kinds of {len(kinds)} tokens"
            if len(streamed) == len(kinds):
                place = next(n for n, (own, other) in enumerate(zip(kinds, streamed, strict=True)) if own != other)
                message = f"token {place} of request {index} is {kinds[place]}, its caller was told {streamed[place]}"
            raise _streamed(message, kinds=[str(kind) for kind in kinds], told=[str(kind) for kind in streamed])
    for index, (request, result) in enumerate(zip(requests, results, strict=False)):
        if told and index not in told and request.n == 1 and result.token_ids:
            message = f"request {index} has the tokens {list(result.token_ids)}, its caller was told nothing"
            raise _streamed(message, told=sorted(told))


def _streamed(message: str, **details: Any) -> Mismatch:
    """Return a failure of streamed tokens: one fault, whatever the case is about."""
    return Mismatch(Failure(Kind.VALUE, message, details={FAULT: STREAMED, **details}))


def check_known(results: Sequence[GenerationResult], vocab_size: int) -> None:
    """Check that every emitted token of every sample is one of the vocabulary."""
    for index, result in enumerate(results):
        for sample in (result, *result.samples):
            for place, token in enumerate(sample.token_ids):
                if not 0 <= token < vocab_size:
                    message = f"request {index} emitted {token} at position {place}; there are {vocab_size} tokens"
                    raise Mismatch(Failure(Kind.VALUE, message, details={"position": place}))


def check_kinds(results: Sequence[GenerationResult]) -> None:
    """Check the steps of results, and that the kinds of their tokens are those that the steps make them.

    Raises:
        Mismatch: a step accepts more drafts than it has, or there is not one kind per token; where all steps are
            known, a kind that they do not make.
    """
    for index, result in enumerate(results):
        for sample in (result, *result.samples):
            for number, step in enumerate(sample.steps):
                if not 0 <= step.accepted <= step.drafted:
                    message = f"step {number} of request {index} has {step.accepted} of {step.drafted} drafts accepted"
                    raise Mismatch(Failure(Kind.VALUE, message))
            kinds, count = kinds_of(sample), len(sample.token_ids)
            if sample.kinds and len(sample.kinds) != count:
                message = f"request {index} has {len(sample.kinds)} kinds of {count} tokens"
                raise Mismatch(Failure(Kind.VALUE, message))
            if sample.kinds and len(kinds) == count and sample.kinds != kinds:
                called, made = [str(kind) for kind in sample.kinds], [str(kind) for kind in kinds]
                message = f"request {index} has tokens of the kinds {called}, its steps make them {made}"
                raise Mismatch(Failure(Kind.VALUE, message))


def kinds_of(result: GenerationResult) -> tuple[TokenKind, ...]:
    """Return the origin of each token, from the steps of a result; the end of a request may cut the last step."""
    found: list[TokenKind] = []
    for step in result.steps:
        last = TokenKind.BONUS if step.accepted == step.drafted else TokenKind.RECOVERED
        found += [TokenKind.ACCEPTED] * step.accepted + [last if step.drafted else TokenKind.PLAIN]
    return tuple(found[: len(result.token_ids)])

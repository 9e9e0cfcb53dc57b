"""A generator that raises is a finding, and is not used again: its state could spoil the next case."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import (
    GenerationRequest,
    GenerationResult,
    Generator,
    OnEmit,
    SpeculationMetrics,
    TokenKind,
)
from verispec.errors import VerispecError
from verispec.judge import Failure, Kind, Mismatch


class GuardedGenerator:
    """`generator`, whose exceptions fail the case; `broken` once there was one. Clear refusals pass through."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self.broken = False
        self.requests: tuple[GenerationRequest, ...] = ()
        """Requests of the last call, for `verispec.saved_calls`."""

    def generate(self, requests: Sequence[GenerationRequest], on_emit: OnEmit | None = None) -> list[GenerationResult]:
        """Generate with copies of `requests`, and check the copies and the tokens that callers hear of."""
        given = copy.deepcopy(list(requests))
        self.requests = tuple(requests)
        told: dict[int, list[int]] = {}

        def listen(index: int, tokens: Sequence[int], kinds: Sequence[TokenKind]) -> None:
            told.setdefault(index, []).extend(tokens)
            if on_emit is not None:
                on_emit(index, tokens, kinds)

        try:
            results = self._generator.generate(given, listen)
        except (UnsupportedCall, VerispecError):
            raise
        except Exception as error:
            self.broken = True
            message = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            raise Mismatch(Failure(Kind.RAISED, message)) from error
        if given != list(requests):
            raise Mismatch(Failure(Kind.INPUT_CHANGED, "the engine changed the requests that it was given"))
        check_told(told, given, results)
        return results

    def metrics(self) -> SpeculationMetrics:
        """Return the engine's counts."""
        return self._generator.metrics()

    def close(self) -> None:
        """Close the engine's generator."""
        self._generator.close()


def check_told(
    told: Mapping[int, Sequence[int]], requests: Sequence[GenerationRequest], results: Sequence[GenerationResult]
) -> None:
    """Check that the tokens of each request's `on_emit` calls are those of its result.

    Args:
        told: tokens of all calls by request; an engine that streams nothing has none.
        requests: those with several samples are left out, since the calls do not name the sample.
        results: one per request.
    """
    for index, tokens in told.items():
        if not 0 <= index < len(requests):
            raise Mismatch(Failure(Kind.VALUE, f"on_emit named request {index} of {len(requests)}"))
        own = results[index].token_ids
        if requests[index].n == 1 and tuple(tokens) != own:
            message = f"request {index} has the tokens {list(own)}, its caller was told {list(tokens)}"
            raise Mismatch(Failure(Kind.VALUE, message))

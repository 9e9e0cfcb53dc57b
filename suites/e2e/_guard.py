"""A generator that raises is a finding, and is not used again: its state could spoil the next case."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import (
    GenerationRequest,
    GenerationResult,
    Generator,
    OnEmit,
    SpeculationMetrics,
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
        """Generate with copies of `requests`, and check the results and the copies."""
        given = copy.deepcopy(list(requests))
        self.requests = tuple(copy.deepcopy(given))
        try:
            results = self._generator.generate(given, on_emit)
        except (UnsupportedCall, VerispecError):
            raise
        except Exception as error:
            self.broken = True
            message = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            raise Mismatch(Failure(Kind.RAISED, message)) from error
        if given != list(requests):
            raise Mismatch(Failure(Kind.INPUT_CHANGED, "the engine changed the requests that it was given"))
        return results

    def metrics(self) -> SpeculationMetrics:
        """Return the engine's counts."""
        return self._generator.metrics()

    def close(self) -> None:
        """Close the engine's generator."""
        self._generator.close()

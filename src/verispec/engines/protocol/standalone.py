"""The optional methods by which an engine says how its users call it, in Python source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from verispec.engines.protocol.engine import Unsupported
from verispec.engines.protocol.generation import GenerationRequest, LoadOptions
from verispec.engines.protocol.sampling import SamplerBatch


@dataclass(frozen=True, slots=True)
class StandaloneCall:
    """Source that calls an op without verispec.

    Args:
        setup: lines at the top of a module: imports, and the preparation of the first kernel.
        call: one expression or statement; tensors are the variables that the caller named.
    """

    setup: tuple[str, ...]
    call: str


@runtime_checkable
class Standalone(Protocol):
    """An engine for which `verispec repro --export` writes a test."""

    def standalone_call(
        self, name: str, arguments: Mapping[str, Any], variables: Mapping[str, str]
    ) -> StandaloneCall | Unsupported:
        """Return the source of one call.

        Args:
            name: the op.
            arguments: its arguments by the contract's parameter names.
            variables: the variable that holds each tensor, by parameter name; other arguments are written out.
        """
        ...


@dataclass(frozen=True, slots=True)
class StandaloneBody:
    """Source that runs one step of a sampler, or generates text, without verispec.

    Args:
        setup: lines at the top of a module.
        lines: statements that leave ``tokens``: one list of token ids per request.
    """

    setup: tuple[str, ...]
    lines: tuple[str, ...]


@runtime_checkable
class StandaloneSampler(Protocol):
    """An engine for whose sampler `verispec repro --export` writes a test."""

    def standalone_step(self, batch: SamplerBatch, family: str = "flat") -> StandaloneBody | Unsupported:
        """Return the source of one step.

        Args:
            batch: the step. Its logits are the variable ``logits``, its draft probabilities ``draft_probs``, which is
                None without them; everything else is written out.
            family: family of `Engine.sampler`.
        """
        ...


@runtime_checkable
class StandaloneGenerator(Protocol):
    """An engine for whose generation `verispec repro --export` writes a test."""

    def standalone_text(
        self, options: LoadOptions, requests: Sequence[GenerationRequest]
    ) -> StandaloneBody | Unsupported:
        """Return the source that loads a target and generates.

        Args:
            options: options of the generator. The folders are the variables ``TARGET`` and ``DRAFT``, of type str.
            requests: one batch.
        """
        ...

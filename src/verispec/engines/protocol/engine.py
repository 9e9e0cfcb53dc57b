"""The protocol that every engine answers, and what it may answer with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

OpFunction = Callable[..., Any]
"""Called with the contract's parameters by keyword, torch tensors on the engine's device; writes outputs in place."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """An engine's answer to something that it cannot do; never judged as a pass."""

    reason: str
    issue: str = ""


class UnsupportedCall(Exception):
    """Raised by an op or a sampler for one call that the engine declares it cannot do, before anything was written.

    A clear refusal is a gap and judged `unsupported`; any other exception is a crash.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Description:
    """What an engine says of itself; `details` goes into the run file and the report's header.

    `platform` is what the implementation is for in production, "cpu" or "cuda"; `device` is where it
    runs now. Triton kernels in the interpreter are for "cuda" and run on "cpu".
    """

    name: str
    version: str
    platform: str
    device: str = "cpu"
    details: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class Engine(Protocol):
    """What an engine answers. Any part may be `Unsupported`."""

    def describe(self) -> Description: ...

    def op(self, name: str) -> OpFunction | Unsupported:
        """The kernel that the engine's own callers reach for the op `name`."""
        ...

    def sampler(self, family: str = "flat") -> Any | Unsupported:
        """The whole sampler: logits and drafts in, tokens out (`verispec.engines.protocol.sampling`).

        `family` is that of the ops that it is made of: "flat", from probabilities and generators, or "request_state",
        from logits and random numbers counted by seed and position.
        """
        ...

    def load(self, target: Path, **options: Any) -> Any | Unsupported:
        """A generator over the checkpoint folder `target` (`verispec.engines.protocol.generation`)."""
        ...

    def definitions(self) -> Mapping[str, Any] | Unsupported:
        """Return live callables by op name, for the signature suite."""
        ...

    def close(self) -> None: ...

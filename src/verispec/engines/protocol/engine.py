"""The protocol that every engine answers.

An engine is any object with the six methods of `Engine`; nothing has to be subclassed. A part that the
engine lacks answers `Unsupported(reason)`. `verispec.engines.protocol.check` tests an engine against this
protocol before the first case runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Unpack, runtime_checkable

from verispec.engines.protocol.generation import Generator, LoadKeywords
from verispec.engines.protocol.runtime_signature import RuntimeSignature
from verispec.engines.protocol.sampling import WholeSampler

OpFunction = Callable[..., object]
"""An op. It is called with all parameters of its contract by keyword, in any order.

Tensors are torch tensors on the engine's device, and outputs are written in place. Only an op whose contract
has `returns` returns something. `verispec explain OP` lists the parameters with shapes and dtypes.
"""

PLATFORMS = ("cpu", "cuda")
"""Platforms and devices that a `Description` may name."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """An answer that says that the engine lacks a part. Its cases are `unsupported`, which is never a pass.

    Args:
        reason: one sentence for the report.
        issue: link to the issue that tracks it; may be empty.
    """

    reason: str
    issue: str = ""


class UnsupportedCall(Exception):
    """The exception of an op, a sampler or a generator that rejects one call before it has written anything.

    The case is then `unsupported`. Any other exception is a failure of the case.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Description:
    """The identity of an engine in results files and reports.

    Args:
        name: short name of the engine.
        version: its version, as its users know it.
        platform: platform that the implementation is made for, one of `PLATFORMS`.
        device: device that it runs on now, one of `PLATFORMS`, which holds the tensors of every op. Triton kernels in
            the interpreter are for "cuda" and run on "cpu".
        details: more facts for the report's header, such as the commit or the CPU capability.
    """

    name: str
    version: str
    platform: str
    device: str = "cpu"
    details: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class Engine(Protocol):
    """The protocol of every engine; each part may be `Unsupported`."""

    def describe(self) -> Description:
        """Return the engine's identity, the same in every call."""
        ...

    def op(self, name: str) -> OpFunction | Unsupported:
        """Return the function that the engine's own callers reach for the op `name`.

        Args:
            name: name of any op with a contract.

        Returns:
            A function of the op's parameters by keyword; `Unsupported` for an op that the engine does not have.
        """
        ...

    def sampler(self, family: str = "flat") -> WholeSampler | Unsupported:
        """Return the end-to-end sampler: logits and draft tokens in, emitted tokens out.

        Args:
            family: "flat", which draws from a generator per request; "request_state", which draws from a
                counter-based RNG by seed and position; "block", which verifies all drafts of a request as one block;
                "fused", which goes from raw logits to tokens in one launch.

        Returns:
            A callable over a `SamplerBatch`; `Unsupported` if the engine has no sampler of this family.
        """
        ...

    def load(self, target: Path, **options: Unpack[LoadKeywords]) -> Generator | Unsupported:
        """Return a generator over a checkpoint.

        Args:
            target: a Hugging Face checkpoint folder with safetensors weights.
            options: fields of `verispec.engines.LoadOptions`; `LoadOptions(**options)` validates them.

        Returns:
            The generator; `Unsupported` if the engine lacks one of the options.

        Raises:
            VerispecError: the checkpoint cannot be used, or an option is invalid.
        """
        ...

    def definitions(self) -> Mapping[str, RuntimeSignature | OpFunction] | Unsupported:
        """Return the callables of the running engine, for the signature suite.

        Returns:
            A function or a `RuntimeSignature` by op name. A plain function stands for a call with its own parameters.
        """
        ...

    def close(self) -> None:
        """Release the engine's resources. It is called once, after the last case."""
        ...

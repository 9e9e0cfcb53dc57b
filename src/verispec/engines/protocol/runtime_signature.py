"""The runtime signature of one op, for the signature suite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallShape:
    """The way a caller passes a kernel's arguments.

    Args:
        positional: number of arguments by position.
        keywords: the names of the others.
    """

    positional: int
    keywords: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RuntimeSignature:
    """An op as it is bound in a running engine.

    Args:
        op: the contract's name.
        where: dotted name of the call site.
        parameters: the kernel's own parameters, in order: a launch binds to these.
        implementation: the function that runs (a fallback, or the kernel).
        runs: True if the call site runs here: an override, or the kernel itself where there is Triton.
        shape: form in which the arguments arrive at the implementation.
    """

    op: str
    where: str
    parameters: tuple[str, ...]
    implementation: Callable[..., object]
    runs: bool
    shape: CallShape

"""What an engine says of one op for the signature suite: who calls it, with what, and what runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Live:
    """An op as it stands in a running engine.

    Args:
        op: the contract's name.
        where: dotted name of what callers hold.
        parameters: the kernel's own parameters, in order: what a launch binds to.
        implementation: the function that really runs (a fallback, or the kernel).
        replaced: an override is installed where callers look.
        dispatch: the function that takes the caller's arguments and returns (grid, further launch arguments);
            None where callers launch the kernel themselves.
        positional, keywords: how those callers pass arguments: so many by position, the rest by these names.
    """

    op: str
    where: str
    parameters: tuple[str, ...]
    implementation: Callable[..., Any]
    replaced: bool
    dispatch: Callable[..., Any] | None = None
    positional: int = 0
    keywords: tuple[str, ...] = ()

"""The optional method by which an engine says how its users call an op, in Python source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from verispec.engines.protocol.engine import Unsupported


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

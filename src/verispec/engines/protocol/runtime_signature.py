"""What an engine says of one op for the signature suite: who calls it, with what, and what runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from verispec.engines.adapters.vllm.launch import CallShape
from verispec.static.linking.binding import LAUNCH_OPTIONS


@dataclass(frozen=True, slots=True)
class RuntimeSignature:
    """An op as it stands in a running engine.

    Args:
        op: the contract's name.
        where: dotted name of what callers hold.
        parameters: the kernel's own parameters, in order: what a launch binds to.
        implementation: the function that really runs (a fallback, or the kernel).
        runs: what callers hold runs here: an override, or the kernel itself where there is Triton.
        shape: how the arguments arrive at the implementation.
    """

    op: str
    where: str
    parameters: tuple[str, ...]
    implementation: Callable[..., Any]
    runs: bool
    shape: CallShape


def forwarded(parameters: Sequence[str], implementation: Callable[..., Any]) -> CallShape:
    """How a dispatcher passes a kernel's arguments on: by name to the kernel's very names, else all by position.

    Source: vllm 0.33.0 ``vllm.triton_utils.dispatcher.KernelOverride``.
    """
    if tuple(inspect.signature(implementation).parameters) == tuple(parameters):
        return CallShape(0, tuple(parameters))
    return CallShape(len(parameters), ())


def kernels_part(shape: CallShape) -> CallShape:
    """What of a launch reaches a Triton kernel: its launcher keeps the options, such as ``num_warps``."""
    return CallShape(shape.positional, tuple(name for name in shape.keywords if name not in LAUNCH_OPTIONS))

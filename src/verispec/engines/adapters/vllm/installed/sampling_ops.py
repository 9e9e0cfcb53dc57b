"""Ops that are functions of vLLM's sampler, not kernels, as its callers reach them on this platform."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from verispec.engines import OpFunction, StandaloneCall, Unsupported
from verispec.engines.adapters.vllm.installed.fallbacks import import_if_there

REJECTION_SAMPLER = "vllm.v1.sample.rejection_sampler"


def find(name: str) -> OpFunction | Unsupported | None:
    """Return the op `name` as vLLM's rejection sampler calls it; None if it is not an op of this kind."""
    adapt = _ADAPTERS.get(name)
    if adapt is None:
        return None
    called = function(name)
    return Unsupported(f"this vLLM has no {REJECTION_SAMPLER}.{name}") if called is None else adapt(called)


def function(name: str) -> Callable[..., torch.Tensor] | None:
    """Return the function `name` that vLLM's rejection sampler calls; None if it calls no op of this name."""
    # By the name in the caller's module: an override elsewhere is not what the caller reaches.
    return getattr(import_if_there(REJECTION_SAMPLER), name, None) if name in _ADAPTERS else None


def source(name: str, variables: Mapping[str, str]) -> StandaloneCall | None:
    """Return the source of a call of the op `name`.

    Args:
        name: name of any op with a contract.
        variables: name of the variable that holds each tensor, by parameter name; "None" is written for a missing one.

    Returns:
        The source; None when it is not an op of this kind.
    """
    if name not in _ADAPTERS:
        return None
    output, logits, k, p = (variables.get(each, "None") for each in ("output", "logits", "k", "p"))
    setup = (f"from {REJECTION_SAMPLER} import {name}",)
    return StandaloneCall(setup, f"{output}.copy_({name}({logits}.clone(), {k}, {p}))")


def _apply_top_k_top_p(function: Callable[..., torch.Tensor]) -> OpFunction:
    """Return an op over vLLM's `function`, which may change its logits and returns the result.

    The op's output serves as these logits, with its strides and its guard bands.
    """

    def apply_top_k_top_p(output: Any, logits: Any, k: Any, p: Any) -> None:
        masked = function(output.copy_(logits), k, p)
        if masked is not output:
            output.copy_(masked)

    return apply_top_k_top_p


_ADAPTERS: dict[str, Callable[[Callable[..., torch.Tensor]], OpFunction]] = {"apply_top_k_top_p": _apply_top_k_top_p}

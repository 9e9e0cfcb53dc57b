"""Ops that vLLM cuts otherwise than our contracts: bound through its host functions, as far as the two can be compared.

vLLM's request-state sampler draws from counters in its own layout, which differs between its versions. Tokens of
sampled rows therefore cannot be compared one by one. Rows of temperature 0 need no random number and are compared
exactly; a call with any other row is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from verispec.engines import UnsupportedCall

_UTILS = "vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils"


@dataclass(frozen=True, slots=True)
class HostFunction:
    """`function` is the dotted name of vLLM's host function, `call` runs it with the contract's arguments."""

    function: str
    call: Callable[[Callable[..., Any], Mapping[str, Any]], None]


def _rejection(sample: Callable[..., Any], bound: Mapping[str, Any], **options: Any) -> None:
    """Call rejection_sample, and drop the resampled token that it emits: the contract ends before it."""
    _only_greedy(bound["temperature"], bound["idx_mapping"])
    wanted = inspect.signature(sample).parameters
    if lacking := [name for name in options if name not in wanted]:
        raise UnsupportedCall(f"rejection_sample of this tree has no {', '.join(lacking)}")
    arguments = {name: bound[name] for name in wanted if name in bound}
    emitted, num_sampled = sample(**arguments, num_speculative_steps=bound["sampled"].shape[1] - 1, **options)
    ends = bound["cu_num_logits"].tolist()
    for request, state in enumerate(bound["idx_mapping"].tolist()):
        if state < 0:
            continue
        accepted = int(num_sampled[request]) - 1
        drafts = ends[request + 1] - ends[request] - 1
        bound["num_accepted"][request] = accepted
        written = min(accepted + 1, drafts)
        bound["sampled"][request, :written] = emitted[request, :written].to(bound["sampled"].dtype)


def _block_verification(sample: Callable[..., Any], bound: Mapping[str, Any]) -> None:
    _rejection(sample, bound, use_block_verification=True)


def _gumbel(sample: Callable[..., Any], bound: Mapping[str, Any]) -> None:
    """Call gumbel_sample, and copy its new tensor into the output, without rows of padding."""
    states = bound["expanded_idx_mapping"]
    _only_greedy(bound["temperature"], states)
    wanted = inspect.signature(sample).parameters
    cache = {name: bound.get(name) for name in ("logits_cache", "logits_cache_col")}
    if cache["logits_cache"] is not None and "logits_cache" not in wanted:
        raise UnsupportedCall("gumbel_sample of this tree caches logits after temperature, not before")
    arguments = {name: bound[name] for name in wanted if bound.get(name) is not None}
    result = sample(**arguments)
    rows = states >= 0
    bound["sampled"][rows] = result[rows].to(bound["sampled"].dtype)


def _top_k_top_p(mask: Callable[..., Any], bound: Mapping[str, Any]) -> None:
    """Call apply_top_k_top_p_triton on a contiguous copy, on which it works in place."""
    logits = bound["logits"].clone(memory_format=torch.contiguous_format)
    bound["output"].copy_(mask(logits, bound["k"], bound["p"]))


def _only_greedy(temperature: torch.Tensor, states: torch.Tensor) -> None:
    used = states[states >= 0].long()
    if bool((temperature[used] != 0).any()):
        raise UnsupportedCall("vLLM draws from counters of its own: only rows of temperature 0 can be compared")


WHOLE: dict[str, HostFunction] = {
    "probabilistic_rejection": HostFunction(f"{_UTILS}.rejection_sample", _rejection),
    "block_verification": HostFunction(f"{_UTILS}.rejection_sample", _block_verification),
    "gumbel_sample": HostFunction("vllm.v1.worker.gpu.sample.gumbel.gumbel_sample", _gumbel),
    "apply_top_k_top_p": HostFunction("vllm.v1.sample.ops.topk_topp_triton.apply_top_k_top_p_triton", _top_k_top_p),
}
"""By op."""

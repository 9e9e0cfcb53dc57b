"""Acceptance rates of synthetic mode, in which random numbers alone decide about draft tokens.

A configuration contains either a rate per position or a mean acceptance length. These rates are unconditional: the
probability that a position and all before it are accepted. The verification loop ends at the first rejection, so it
needs conditional rates.

Source: vLLM 0.33.0, ``vllm.v1.spec_decode.utils`` and ``vllm.config.speculative``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch


def unconditional_to_conditional_rates(rates: Sequence[float]) -> list[float]:
    """Return each position's rate given that all before it were accepted: c_i = p_i / p_(i-1), 0 after a rate of 0."""
    before = [1.0, *rates[:-1]]
    return [rate / previous if previous > 0 else 0.0 for rate, previous in zip(rates, before, strict=True)]


def acceptance_length_to_rates(length: float, n: int) -> list[float]:
    """Return `n` unconditional rates that sum to `length` - 1, with minimum variance of the accepted length.

    Args:
        length: mean tokens per step in [1, n + 1], the bonus or recovered token included.
        n: number of draft positions.
    """
    accepted = length - 1
    whole = math.floor(accepted)
    return ([1.0] * whole + [accepted - whole] + [0.0] * n)[:n]


def resolve_synthetic_acceptance_rates(n: int, rates: Sequence[float] | None, length: float | None) -> list[float]:
    """Return `n` unconditional rates from exactly one of `rates` and `length`.

    Raises:
        ValueError: both or neither are given, or a value is out of range.
    """
    if (rates is None) == (length is None):
        raise ValueError(f"synthetic mode takes either rates or a length, got rates={rates} and length={length}")
    if rates is not None:
        if len(rates) != n:
            raise ValueError(f"expected {n} acceptance rates, one per draft position, got {len(rates)}: {rates}")
        if not all(0 <= rate <= 1 for rate in rates):
            raise ValueError(f"expected acceptance rates from 0 to 1, got {rates}")
        if any(later > earlier for earlier, later in pairwise(rates)):
            raise ValueError(
                f"expected acceptance rates that never increase from one position to the next, got {rates}"
            )
        return list(rates)
    assert length is not None
    if not 1 <= length <= n + 1:
        raise ValueError(f"expected an acceptance length from 1 to {n + 1} for {n} draft positions, got {length}")
    return acceptance_length_to_rates(length, n)


def conditional_rates(rates: Sequence[float] | None, device: torch.device) -> torch.Tensor | None:
    """Return conditional rates of unconditional ones on `device`, [K] float32; None without synthetic mode."""
    if rates is None:
        return None
    return torch.tensor(unconditional_to_conditional_rates(rates), dtype=torch.float32, device=device)

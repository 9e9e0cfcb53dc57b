"""Acceptance rates of synthetic mode, in which drafts are accepted by chance alone.

A configuration names either the rate of every position or a mean acceptance length. Rates are
unconditional, the chance that a position and all before it are accepted, until the verification
loop, which ends at the first rejection, needs them conditional.
Source: vLLM 0.33.0, ``vllm.v1.spec_decode.utils`` and ``vllm.config.speculative``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise


def unconditional_to_conditional_rates(rates: Sequence[float]) -> list[float]:
    """The chance of each position given that all before it were accepted: c_i = p_i / p_(i-1), 0 after a rate of 0."""
    before = [1.0, *rates[:-1]]
    return [rate / previous if previous > 0 else 0.0 for rate, previous in zip(rates, before, strict=True)]


def acceptance_length_to_rates(length: float, n: int) -> list[float]:
    """`n` unconditional rates that sum to `length` - 1, with the least variance of the accepted length.

    `length` counts the bonus or recovered token of every step, so it lies in [1, n + 1].
    """
    accepted = length - 1
    whole = math.floor(accepted)
    return ([1.0] * whole + [accepted - whole] + [0.0] * n)[:n]


def resolve_synthetic_acceptance_rates(n: int, rates: Sequence[float] | None, length: float | None) -> list[float]:
    """`n` unconditional rates from exactly one of `rates` and `length`; ValueError when they make no sense."""
    if (rates is None) == (length is None):
        raise ValueError(f"synthetic mode takes either rates or a length, got rates={rates} and length={length}")
    if rates is not None:
        if len(rates) != n:
            raise ValueError(f"expected {n} acceptance rates, one a drafted position, got {len(rates)}: {rates}")
        if not all(0 <= rate <= 1 for rate in rates):
            raise ValueError(f"expected acceptance rates from 0 to 1, got {rates}")
        if any(later > earlier for earlier, later in pairwise(rates)):
            raise ValueError(f"expected acceptance rates that never rise from one position to the next, got {rates}")
        return list(rates)
    assert length is not None
    if not 1 <= length <= n + 1:
        raise ValueError(f"expected an acceptance length from 1 to {n + 1} for {n} drafted positions, got {length}")
    return acceptance_length_to_rates(length, n)

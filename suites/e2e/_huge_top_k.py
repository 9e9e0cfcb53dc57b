"""A top-k past 32 bits: it keeps every token, or is refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import GenerationRequest
from verispec.errors import VerispecError
from verispec.judge import Kind, Mismatch
from verispec.suites.e2e._parameters import check_share
from verispec.suites.e2e._reference_model import reference_model

HUGE = (2**31, 2**32 + 1, 2**40 + 3)
"""Numbers of tokens that 32 bits make negative, 1 and 3."""
CONVERSIONS = ("unable to cast", "incompatible function arguments")
"""Words of pybind11 and nanobind where a number does not fit into the C++ type; neither names the parameter."""
NAMED = ("top_k", "top-k", "overflow", "too large", "out of range", "out of bounds", *CONVERSIONS, *map(str, HUGE))
"""Words of an exception that refuses them."""


def check_huge_top_k(
    engine: Any, target: Path, prompts: Sequence[Sequence[int]], temperature: float, rank: int, seed: int
) -> None:
    """Check that requests with each number of `HUGE` emit tokens past a rank as often as they must.

    Args:
        engine: generator of the tested engine.
        target: folder of the target.
        prompts: prompts of one request without a top-k, and then of as many with each number.
        temperature: temperature of all requests.
        rank: number of more likely tokens behind which a token counts.
        seed: seed of the first request, less its whole multiples of 2^31.
    """
    asked = [
        GenerationRequest(
            tuple(prompt),
            max_tokens=48,
            ignore_eos=True,
            temperature=temperature,
            seed=seed % 2**31 + n,
            top_k=0 if n == 0 else HUGE[n % 3],
        )
        for n, prompt in enumerate(prompts)
    ]
    try:
        results = engine.generate(asked)
    except VerispecError as refusal:
        raise UnsupportedCall(str(refusal)) from refusal
    except Mismatch as broken:
        message = broken.failure.message
        if broken.failure.kind is not Kind.RAISED or not any(word in message.lower() for word in NAMED):
            raise
        raise UnsupportedCall(f"a top_k past 32 bits: {message}") from broken
    for first in (1, 2, 3):
        check_share(
            reference_model(target),
            list(zip(asked, results, strict=True))[first::3],
            lambda rows: rows < -np.sort(-rows, axis=1)[:, rank - 1 : rank],
            f"tokens with a top-k of {asked[first].top_k} are past rank {rank:,}",
        )

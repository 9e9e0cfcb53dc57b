"""A request that is called again: a seed that decides nothing is found, and rounding at single draws is not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest

from verispec.engines.protocol.generation import FinishReason, GenerationRequest, GenerationResult
from verispec.judge import Mismatch
from verispec.suites.e2e._seeds import CALLS, LENGTH, MOST, require_seeds

ASKED = [GenerationRequest((1, n), max_tokens=2, temperature=0.9, seed=n) for n in range(MOST + 2)]


class Engine:
    """An engine whose requests with seeds in `lost` have random texts, and whose draws in `near` go either way."""

    def __init__(self, lost: Sequence[int] = (), near: int = 0) -> None:
        self.lost, self.near, self.calls = lost, near, count()
        self.asked: list[GenerationRequest] = []

    def generate(self, requests: Sequence[GenerationRequest]) -> list[GenerationResult]:
        return [self._result(request, next(self.calls)) for request in requests]

    def _result(self, request: GenerationRequest, call: int) -> GenerationResult:
        self.asked.append(request)
        rng = np.random.default_rng([call] if request.seed in self.lost else [9, request.seed or 0])
        tokens = rng.integers(0, 1000, request.max_tokens)
        tokens[: self.near] += np.random.default_rng([7, call]).integers(0, 2, self.near)
        return GenerationResult(tuple(tokens.tolist()), finish_reason=FinishReason.LENGTH)


def check(engine: Any) -> None:
    require_seeds(engine, ASKED)


@pytest.mark.parametrize("lost", range(MOST))
def test_a_lost_seed_is_found(lost: int) -> None:
    with pytest.raises(Mismatch, match=f"no two of {CALLS} calls of one request alone, with a seed of {lost}, have"):
        check(Engine([lost]))


@pytest.mark.parametrize("near", range(4))
def test_draws_at_their_limit_are_no_lost_seed(near: int) -> None:
    engine = Engine(near=near)
    check(engine)
    assert len(engine.asked) == MOST * CALLS
    assert {request.max_tokens for request in engine.asked} == {LENGTH}, "two tokens may be equal by chance"

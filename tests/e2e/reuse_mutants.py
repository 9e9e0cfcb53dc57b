"""Runners that take what is not theirs: a budget for an end, a limit for a sample, a state or a number used before.

``--engine reuse_mutants:<name>``.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from runner_mutants import engine_with

from verispec.engines.protocol.generation import LoadOptions
from verispec.reference.runners import sampling
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.request import RequestState


class BudgetBeforeStop(CPURunner):
    """A step that reaches max_tokens is not searched for stop strings."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        ends: Any = RequestState._ends_by_text
        until: Any = RequestState._until_stop
        reaches = False

        def searched(request: RequestState, tokens: Sequence[int]) -> Any:
            nonlocal reaches
            reaches = request.num_tokens + len(tokens) >= request.max_tokens
            return until(request, tokens)

        RequestState._until_stop = searched  # type: ignore[method-assign]
        RequestState._ends_by_text = lambda request, new: not reaches and ends(request, new)  # type: ignore[method-assign]


class LimitSamples(CPURunner):
    """A greedy request with a top-p below 1 in a mixed batch is sampled."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        made: Any = sampling.sampling_tensors

        def warm(requests: Sequence[RequestState], logits: torch.Tensor) -> Any:
            params = made(requests, logits)
            if params.top_p is None:
                return params
            limited = (params.temperature == 0) & (params.top_p < 1)
            return replace(params, temperature=params.temperature.masked_fill(limited, 1.0))

        sampling.sampling_tensors = warm


class GrammarGoesOn(CPURunner):
    """The grammar of a request starts where that of an earlier one with the same grammar has ended."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        last: dict[int, Hashable] = {}
        until: Any = RequestState._until_stop
        admit: Any = self._admit

        def kept(request: RequestState, tokens: Sequence[int]) -> Any:
            found = until(request, tokens)
            last[id(request.params.grammar)] = request.grammar_state
            return found

        def admitted(index: int, request: Any) -> RequestState:
            state: RequestState = admit(index, request)
            state.grammar_state = last.get(id(request.grammar), state.grammar_state)
            return state

        RequestState._until_stop = kept  # type: ignore[method-assign]
        self._admit = admitted  # type: ignore[method-assign]


class NumbersOfTheTokenBefore(CPURunner):
    """One token in eight is drawn by the random numbers of the token before it."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        own: Any = self._sampling
        sample = own.sample

        def reseeded(logits: torch.Tensor, parts: Sequence[Any]) -> torch.Tensor:
            for request in (part.request for part in parts):
                place = request.num_tokens - (request.num_tokens % 8 == 7)
                request.generator.manual_seed(request.seed + 977 * place)
            drawn: torch.Tensor = sample(logits, parts)
            return drawn

        own.sample = reseeded


class SureDraftsLessSure(CPURunner):
    """Verification takes a probability above 0.9 of a draft for 0.9."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        made: Any = sampling._draft_probs

        def bounded(parts: Sequence[Any], logits: torch.Tensor) -> torch.Tensor | None:
            probs = made(parts, logits)
            return None if probs is None else probs.clamp(max=0.9)

        sampling._draft_probs = bounded


budget_before_stop = engine_with(BudgetBeforeStop)
limit_samples = engine_with(LimitSamples)
grammar_goes_on = engine_with(GrammarGoesOn)
numbers_of_the_token_before = engine_with(NumbersOfTheTokenBefore)
sure_drafts_less_sure = engine_with(SureDraftsLessSure)

"""Runners whose synthetic steps share random numbers, as engines: ``--engine synthetic_mutants:<name>``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from runner_mutants import change_calls, engine_with

from verispec.engines.protocol.generation import LoadOptions
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.request import RequestState


class PositionsOfSixBits(CPURunner):
    """Slots: the numbers of an acceptance return after 64 positions."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        change_calls("synthetic_rejection", "pos", lambda pos: pos % 64)


class GreedySeedZero(CPURunner):
    """Slots: greedy requests have the seed 0, as they draw no tokens."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        own: Any = RequestState.seed_word
        RequestState.seed_word = property(lambda self: 0 if self.params.greedy else own.fget(self))  # type: ignore[assignment, method-assign]


class NumbersOfTwoSteps(CPURunner):
    """Packed: what a step has drawn for a greedy request serves the next one too."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        sampling: Any = self._sampling
        sample = sampling._sampler.sample
        kept: dict[torch.Generator, torch.Tensor] = {}

        def again(logits: torch.Tensor, drafts: Any, params: Any, generators: Sequence[torch.Generator]) -> Any:
            greedy = [g for g, heat in zip(generators, params.temperature.tolist(), strict=True) if heat == 0]
            for generator in greedy:
                if generator in kept:
                    generator.set_state(kept.pop(generator))
                else:
                    kept[generator] = generator.get_state()
            return sample(logits, drafts, params, generators)

        sampling._sampler.sample = again


positions_of_six_bits = engine_with(PositionsOfSixBits)
greedy_seed_zero = engine_with(GreedySeedZero)
numbers_of_two_steps = engine_with(NumbersOfTwoSteps)

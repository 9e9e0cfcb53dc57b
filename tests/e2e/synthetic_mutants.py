"""Runners with faults in the steps of synthetic verification, as engines: ``--engine synthetic_mutants:<name>``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from runner_mutants import change_calls, engine_with

from verispec.engines.protocol.generation import GenerationRequest, LoadOptions
from verispec.reference.runners import verification
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


class CutDraftEmitted(CPURunner):
    """Packed: the first draft that the budget cuts off a step is emitted instead of the bonus token."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        sampling: Any = self._sampling
        sample = sampling.sample

        def kept(logits: torch.Tensor, parts: Sequence[Any]) -> torch.Tensor:
            sampled: torch.Tensor = sample(logits, parts)
            for row, part in zip(sampled, parts, strict=True):
                if part.num_drafts < part.request.drafts and row[part.num_drafts] >= 0:
                    row[part.num_drafts] = int(part.request.tokens[part.request.num_tokens + part.num_drafts])
            return sampled

        sampling.sample = kept


class GreedyNumbersOfZero(CPURunner):
    """Packed: greedy requests have acceptance numbers of 0, as they draw no tokens."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        change_calls("rejection_greedy_sample", "uniform_probs_ptr", torch.zeros_like)


class DraftsNotProcessed(CPURunner):
    """Penalties and words do not see the drafts before a row."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        process = verification.process_logits
        verification.process_logits = lambda logits, histories, drafts: process(
            logits, histories, [[-1] * len(own) for own in drafts]
        )


class SamplesShareAcceptance(CPURunner):
    """Slots: the samples of a greedy request have the seed of the first one, as their texts are equal anyway."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        admit = self._admit

        def same(index: int, request: GenerationRequest) -> RequestState:
            first = None if request.seed is None else request.seed - request.seed % 1000
            return admit(index, replace(request, seed=first) if request.greedy and request.n > 1 else request)

        self._admit = same  # type: ignore[method-assign]


class LastRates(CPURunner):
    """Packed: a step with fewer drafts than there are rates accepts them at the last ones."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        sampling: Any = self._sampling
        sampler = sampling._sampler
        sample, rates = sampler.sample, sampler._synthetic_rates

        def late(logits: torch.Tensor, drafts: Any, *given: Any) -> Any:
            sampler._synthetic_rates = rates[len(rates) - max(drafts.counts) :]
            return sample(logits, drafts, *given)

        sampler.sample = late


positions_of_six_bits = engine_with(PositionsOfSixBits)
greedy_numbers_of_zero = engine_with(GreedyNumbersOfZero)
greedy_seed_zero = engine_with(GreedySeedZero)
numbers_of_two_steps = engine_with(NumbersOfTwoSteps)
drafts_not_processed = engine_with(DraftsNotProcessed)
samples_share_acceptance = engine_with(SamplesShareAcceptance)
last_rates = engine_with(LastRates)
cut_draft_emitted = engine_with(CutDraftEmitted)

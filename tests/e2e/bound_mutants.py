"""Runners that take a request's parameters up to a bound, as engines: ``--engine bound_mutants:<name>``.

Further ones lose what a sample, a slot or a row of a prompt has of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from parameter_mutants import changing
from runner_mutants import engine_with

from verispec.engines.protocol.generation import GenerationRequest, LoadOptions
from verispec.reference.runners import base, sampling, verification
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.step_inputs import prompt_positions


class LogprobsOfTheFirst(CPURunner):
    """Every sample has the log-probabilities of the first one."""

    def generate(self, requests: Any, on_emit: Any = None) -> Any:
        results = super().generate(requests, on_emit)
        return [
            replace(first, samples=tuple(replace(sample, logprobs=first.logprobs) for sample in first.samples))
            for first in results
        ]


class SamplesOfSeedZero(CPURunner):
    """A sample's seed is that of its request times its number, so that those of the seed 0 are equal."""

    def _admit_samples(self, index: int, request: GenerationRequest) -> list[Any]:
        seeds = [request.seed and request.seed * (sample + 1) for sample in range(request.n)]
        return [self._admit(index, replace(request, seed=seed)) for seed in seeds]


class OneEndBeforeMinTokens(CPURunner):
    """`min_tokens` forbids one stop token alone."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        history = verification.TokenHistory

        def first_alone(params: Any, output: Any, stops: Any, rows: Any) -> Any:
            return history(params, output, sorted(stops)[:1], rows)

        verification.TokenHistory = first_alone  # type: ignore[assignment, misc]


class WarmPromptLogprobs(CPURunner):
    """Log-probabilities of a prompt are divided by its request's temperature."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        record = base.record_prompt_logprobs

        def divided(scheduled: Sequence[Any], logits: torch.Tensor) -> None:
            heat = [part.request.params.temperature or 1.0 for part in scheduled for _ in prompt_positions(part)]
            record(scheduled, logits / torch.tensor(heat)[:, None])

        base.record_prompt_logprobs = divided


class SlotsSampleACopy(CPURunner):
    """The slot-indexed sampler tempers a copy of the logits, which processed log-probabilities do not see."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        if isinstance(self._sampling, sampling.RequestStateSampling):
            sampler: Any = self._sampling._sampler
            sample = sampler.sample
            sampler.sample = lambda logits, rows, states: sample(logits.clone(), rows, states)


class DraftsAtLeastWarm(CPURunner):
    """Drafts are drawn at a temperature of at least 0.5."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        draw = sampling.sample_drafts
        sampling.sample_drafts = lambda logits, temperatures, generators: draw(
            logits, [heat and max(heat, 0.5) for heat in temperatures], generators
        )


class FullChunkSamples(CPURunner):
    """A chunk that fills the budget of a step samples, although one token of the prompt is left."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        scheduler: Any = self._scheduler
        part = scheduler._part

        def early(request: Any, budget: int) -> Any:
            found = part(request, budget)
            left = request.num_tokens - request.num_computed - 1
            if found is None or not found.num_tokens == left == scheduler.token_budget:
                return found
            return found._replace(samples=True, drafts=True)

        scheduler._part = early


logprobs_of_the_first = engine_with(LogprobsOfTheFirst)
samples_of_seed_zero = engine_with(SamplesOfSeedZero)
one_end_before_min_tokens = engine_with(OneEndBeforeMinTokens)
warm_prompt_logprobs = engine_with(WarmPromptLogprobs)
slots_sample_a_copy = engine_with(SlotsSampleACopy)
drafts_at_least_warm = engine_with(DraftsAtLeastWarm)
full_chunk_samples = engine_with(FullChunkSamples)
four_stop_tokens = changing(stop_token_ids=lambda request: request.stop_token_ids[:4])
two_stop_strings = changing(stop=lambda request: request.stop[:2])
few_biases = changing(logit_bias=lambda request: dict(islice(request.logit_bias.items(), 32)))
cold_is_greedy = changing(temperature=lambda request: request.temperature if request.temperature >= 0.3 else 0.0)
at_most_two = changing(temperature=lambda request: min(request.temperature, 2.0))
two_decimals = changing(temperature=lambda request: round(request.temperature, 2))
top_k_of_32_bits = changing(top_k=lambda request: request.top_k % 2**32)

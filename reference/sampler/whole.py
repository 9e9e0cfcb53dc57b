"""The packed sampler behind the harness's end-to-end sampler protocol (`verispec.engines.protocol.sampling`)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from verispec.engines.protocol.sampling import (
    DraftedTokens,
    Draws,
    ProcessedTokens,
    RequestContext,
    SamplerBatch,
    Trace,
)

from .drafting import fill_with_noise, noise_dtype, sample_drafts
from .flat import DraftBatch, FlatSampler, SamplingTensors
from .logprobs import gather_logprobs
from .processors import TokenHistory, process_logits
from .synthetic_rates import conditional_rates


class WholeFlatSampler:
    """Samples one `SamplerBatch` at a time; a request without a seed takes one from torch's default generator.

    Args:
        device: device of the sampler; batches and results are on the CPU.
    """

    def __init__(self, device: str = "cpu") -> None:
        self._device = torch.device(device)

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        """Return the tokens of each request."""
        return self._verify(batch, [_generator(seed, self._device) for seed in _seeds(batch)])

    def trace(self, batch: SamplerBatch) -> Trace:
        """Return the tokens of each request, and the random samples of seeded, sampled requests."""
        device = self._device
        seeds = _seeds(batch)
        tokens = self._verify(batch, [_generator(seed, device) for seed in seeds])
        draws: list[Draws | None] = [None] * len(tokens)
        counts, heat = batch.counts, batch.temperature.tolist()
        seeded = [row for row, seed in enumerate(seeds) if seed is not None and heat[row] > 0]
        generators = [_generator(seeds[row], device) for row in seeded]
        drawn = torch.empty(len(seeded), batch.vocab_size, dtype=noise_dtype(device), device=device)
        noises = fill_with_noise(drawn, generators).cpu()
        for row, generator, noise in zip(seeded, generators, noises, strict=True):
            uniform = torch.empty(counts[row], dtype=torch.float64, device=device).uniform_(generator=generator).cpu()
            bonus = tokens[row][-1] if len(tokens[row]) == counts[row] + 1 else -1
            draws[row] = Draws(uniform, noise, bonus, noise)
        return Trace(tokens, draws)

    def draft_and_verify(self, batch: SamplerBatch, draft_logits: torch.Tensor) -> DraftedTokens:
        """Return draft tokens sampled from `draft_logits` and the tokens that verification emits.

        One generator per request serves both, as in generation: verification goes on where drafting stopped.

        Args:
            batch: the step; `batch.counts` says how many draft tokens to sample.
            draft_logits: [N, V] float32, before temperature; row j belongs to draft token j.
        """
        generators = [_generator(seed, self._device) for seed in _seeds(batch)]
        temperatures, counts = batch.temperature.tolist(), batch.counts
        ends = list(itertools.accumulate(counts))
        drafted: list[list[int]] = [[] for _ in counts]
        probs = torch.zeros(draft_logits.shape, device=self._device)
        for position in range(max(counts, default=0)):
            requests = [b for b, count in enumerate(counts) if count > position]
            rows = [ends[b] - counts[b] + position for b in requests]
            token_ids, drawn_from = sample_drafts(
                draft_logits[rows].to(self._device),
                [temperatures[b] for b in requests],
                [generators[b] for b in requests],
            )
            probs[rows] = drawn_from
            for b, token in zip(requests, token_ids.tolist(), strict=True):
                drafted[b].append(token)
        step = replace(batch, draft_token_ids=drafted, draft_probs=probs.cpu())
        return DraftedTokens(drafted, self._verify(step, generators))

    def process_and_verify(
        self, batch: SamplerBatch, contexts: Sequence[RequestContext], logprobs_mode: str = "raw"
    ) -> ProcessedTokens:
        """Return tokens and log-probabilities of a step with logits processors."""
        generators = [_generator(seed, self._device) for seed in _seeds(batch)]
        return with_processors(
            batch, contexts, logprobs_mode, self._device, lambda logits: self._verify(batch, generators, logits)
        )

    def _verify(
        self, batch: SamplerBatch, generators: list[torch.Generator], given: torch.Tensor | None = None
    ) -> list[list[int]]:
        """Verify `batch`, from the logits `given` instead of its own if there are any, which are written over."""
        device = self._device
        flat = list(itertools.chain.from_iterable(batch.draft_token_ids))
        drafts = DraftBatch(
            batch.counts,
            torch.tensor(flat, dtype=torch.int32, device=device),
            torch.tensor(batch.counts, device=device).cumsum(0, dtype=torch.int32),
            _moved(batch.draft_probs, device),
        )
        limits = (_moved(values, device) for values in (batch.top_k, batch.top_p, batch.min_p))
        params = SamplingTensors(batch.temperature.to(device), *limits)
        logits = copied_logits(batch, device) if given is None else given
        sampler = FlatSampler(conditional_rates(batch.synthetic_rates, device))
        sampled = sampler.sample(logits, drafts, params, generators)
        return [[token for token in row if token >= 0] for row in sampled.tolist()]


def copied_logits(batch: SamplerBatch, device: torch.device) -> torch.Tensor:
    """Return the logits of a batch on `device`, contiguous, to be written over."""
    return torch.empty(batch.logits.shape, dtype=torch.float32, device=device).copy_(batch.logits)


def with_processors(
    batch: SamplerBatch,
    contexts: Sequence[RequestContext],
    logprobs_mode: str,
    device: torch.device,
    verify: Callable[[torch.Tensor], list[list[int]]],
) -> ProcessedTokens:
    """Process the logits of `batch`, verify them, and gather log-probabilities.

    Args:
        batch: the step.
        contexts: one per request.
        logprobs_mode: "raw" or "processed".
        device: device of the logits.
        verify: function from processed logits to tokens, which it tempers and masks in place.
    """
    logits = copied_logits(batch, device)
    raw = logits.clone() if logprobs_mode == "raw" else logits
    histories = [
        TokenHistory(context.params, context.output_token_ids, context.stop_token_ids, context.allowed_rows)
        for context in contexts
    ]
    process_logits(logits, histories, batch.draft_token_ids)
    tokens = verify(logits)
    wanted = [context.params.logprobs for context in contexts]
    return ProcessedTokens(tokens, gather_logprobs(raw, tokens, batch.counts, wanted))


def _seeds(batch: SamplerBatch) -> list[int | None]:
    return list(batch.seeds or [None] * len(batch.draft_token_ids))


def _moved(tensor: torch.Tensor | None, device: torch.device) -> torch.Tensor | None:
    return None if tensor is None else tensor.to(device)


def _generator(seed: int | None, device: torch.device) -> torch.Generator:
    generator = torch.Generator(device)
    return generator.manual_seed(int(torch.randint(2**63 - 1, ())) if seed is None else seed)

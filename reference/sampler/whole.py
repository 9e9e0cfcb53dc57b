"""The packed sampler behind the harness's end-to-end sampler protocol (`verispec.engines.protocol.sampling`)."""

from __future__ import annotations

import itertools

import torch

from verispec.engines.protocol.sampling import Draws, SamplerBatch, Trace, replay

from .drafting import exponential_noise, noise_dtype
from .flat import DraftBatch, FlatSampler, SamplingTensors
from .synthetic_rates import unconditional_to_conditional_rates


class WholeFlatSampler:
    """Samples one `SamplerBatch` at a time; a request without a seed takes one from torch's default generator.

    Args:
        device: device of the sampler; batches and results are on the CPU.
    """

    def __init__(self, device: str = "cpu") -> None:
        self._device = torch.device(device)

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        """Return the tokens of each request."""
        return self.trace(batch).tokens

    def trace(self, batch: SamplerBatch) -> Trace:
        """Return the tokens of each request, and the random samples of seeded, sampled requests."""
        device = self._device
        seeds = batch.seeds or [None] * len(batch.draft_token_ids)
        generators = [_generator(seed, device) for seed in seeds]
        flat = list(itertools.chain.from_iterable(batch.draft_token_ids))
        drafts = DraftBatch(
            batch.counts,
            torch.tensor(flat, dtype=torch.int32, device=device),
            torch.tensor(batch.counts, device=device).cumsum(0, dtype=torch.int32),
            _moved(batch.draft_probs, device),
        )
        limits = (_moved(values, device) for values in (batch.top_k, batch.top_p, batch.min_p))
        params = SamplingTensors(batch.temperature.to(device), *limits)
        logits = torch.empty(batch.logits.shape, dtype=torch.float32, device=device).copy_(batch.logits)
        sampled = _sampler(batch, device).sample(logits, drafts, params, generators)
        tokens = [[token for token in row if token >= 0] for row in sampled.tolist()]
        draws: list[Draws | None] = [None] * len(tokens)
        for row, (seed, count) in enumerate(zip(seeds, batch.counts, strict=True)):
            if seed is not None and float(batch.temperature[row]) > 0:
                generator = _generator(seed, device)
                bonus_noise = exponential_noise(batch.vocab_size, generator, device).cpu()
                bonus = tokens[row][-1] if len(tokens[row]) == count + 1 else -1
                if not count:
                    draws[row] = Draws(torch.empty(0, dtype=torch.float64), bonus_noise, bonus, bonus_noise)
                    continue
                drawn = replay(generator, count, batch.vocab_size, bonus, noise_dtype(device))
                draws[row] = Draws(drawn.uniform.cpu(), drawn.noise.cpu(), bonus, bonus_noise)
        return Trace(tokens, draws)


def _moved(tensor: torch.Tensor | None, device: torch.device) -> torch.Tensor | None:
    return None if tensor is None else tensor.to(device)


def _generator(seed: int | None, device: torch.device) -> torch.Generator:
    generator = torch.Generator(device)
    return generator.manual_seed(int(torch.randint(2**63 - 1, ())) if seed is None else seed)


def _sampler(batch: SamplerBatch, device: torch.device) -> FlatSampler:
    if batch.synthetic_rates is None:
        return FlatSampler()
    rates = unconditional_to_conditional_rates(batch.synthetic_rates)
    return FlatSampler(torch.tensor(rates, dtype=torch.float32, device=device))

"""The slot-indexed sampler behind the harness's end-to-end sampler protocol (`verispec.engines.protocol.sampling`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from verispec.engines.protocol.sampling import Draws, ProcessedTokens, RequestContext, SamplerBatch, Trace
from verispec.reference.oracle.philox import Draw, gumbel_rows, uniform_rows

from .request_state import RequestRows, RequestStates, RequestStateSampler
from .synthetic_rates import conditional_rates
from .whole import copied_logits, with_processors


class WholeRequestStateSampler:
    """Samples one `SamplerBatch` at a time; a request without a seed gets one from torch's default generator.

    Every block starts its sequence, so that row i has position i. States are assigned in reverse order, since otherwise
    an op could mistake the batch index for the state unnoticed.

    Args:
        device: device of the sampler; batches and results are on the CPU.
        block_verification: True verifies blocks instead of tokens.
        fused: True draws by inverse CDF in the fused ops.
    """

    def __init__(self, device: str = "cpu", *, block_verification: bool = False, fused: bool = False) -> None:
        self._device = torch.device(device)
        self._block_verification = block_verification
        self._fused = fused

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        """Return the tokens of each request."""
        return self._sample(batch, self._seeds(batch), fused=self._fused)

    def trace(self, batch: SamplerBatch) -> Trace:
        """Return the tokens of each request, and the random samples of its position and steps.

        The contract defines the samples. Every sampled request has them; the noise is of the row of its last token.
        Block verification and the fused ops do not follow the rule of `Draws`, so that they
        return none.
        """
        seeds = self._seeds(batch)
        tokens = self._sample(batch, seeds, fused=self._fused)
        draws: list[Draws | None] = [None] * len(tokens)
        if self._block_verification or self._fused:
            return Trace(tokens, draws)
        last = np.array([len(emitted) - 1 for emitted in tokens])
        # Synthetic mode draws a token for every row at step 0, before acceptance is known.
        steps = last if batch.synthetic_rates is None else np.zeros_like(last)
        noise = np.exp(-gumbel_rows(np.array(seeds), last, steps, Draw.TARGET, batch.vocab_size))
        counts = batch.counts
        step = np.concatenate([np.arange(count) for count in counts])
        numbers = uniform_rows(np.repeat(np.array(seeds), counts), step, step, Draw.ACCEPT, 1)[:, 0]
        accept = torch.from_numpy(numbers).split(counts)
        for b, (count, own, row, emitted) in enumerate(
            zip(counts, accept, torch.from_numpy(noise), tokens, strict=True)
        ):
            if float(batch.temperature[b]) > 0:
                is_bonus = len(emitted) == count + 1
                bonus = (emitted[-1], row) if is_bonus else (-1, None)
                draws[b] = Draws(own, row, *bonus)
        return Trace(tokens, draws)

    def process_and_verify(
        self, batch: SamplerBatch, contexts: Sequence[RequestContext], logprobs_mode: str = "raw"
    ) -> ProcessedTokens:
        """Return tokens and log-probabilities of a step with logits processors.

        Processed log-probabilities are verified op by op, because the fused ops leave the logits unlimited.
        """
        seeds, fused = self._seeds(batch), self._fused and logprobs_mode == "raw"
        return with_processors(
            batch, contexts, logprobs_mode, self._device, lambda logits: self._sample(batch, seeds, logits, fused=fused)
        )

    @staticmethod
    def _seeds(batch: SamplerBatch) -> list[int]:
        fresh = torch.randint(-(2**63), 2**63 - 1, (len(batch.counts),), dtype=torch.int64).tolist()
        given = batch.seeds or fresh
        return [new if seed is None else seed for seed, new in zip(given, fresh, strict=True)]

    def _sample(
        self, batch: SamplerBatch, seeds: list[int], given: torch.Tensor | None = None, *, fused: bool
    ) -> list[list[int]]:
        """Sample `batch`, from the logits `given` instead of its own if there are any, which are written over."""
        device, count = self._device, len(seeds)
        states = list(range(count))[::-1]
        rows = RequestRows.of([[0, *ids] for ids in batch.draft_token_ids], [0] * count, states, device)

        def table(values: torch.Tensor | None) -> torch.Tensor | None:
            return None if values is None else values.flip(0).to(device)

        temperature = batch.temperature.float()
        tables = RequestStates(
            temperature.flip(0).to(device),
            torch.tensor(seeds, dtype=torch.int64).flip(0).to(device),
            table(batch.top_k),
            table(batch.top_p),
            table(batch.min_p),
            draft_logits=_draft_logits(batch, states, temperature).to(device)
            if batch.draft_probs is not None
            else None,
        )
        rates = conditional_rates(batch.synthetic_rates, device)
        sampler = RequestStateSampler(block_verification=self._block_verification, synthetic_rates=rates, fused=fused)
        logits = copied_logits(batch, device) if given is None else given
        sampled = sampler.sample(logits, rows, tables)
        return [ids[:emitted] for ids, emitted in zip(sampled.token_ids.tolist(), sampled.counts.tolist(), strict=True)]


def _draft_logits(batch: SamplerBatch, states: list[int], temperature: torch.Tensor) -> torch.Tensor:
    """Return logits [R, K, V] whose softmax over the temperature is the batch's draft distribution."""
    assert batch.draft_probs is not None
    counts = torch.tensor(batch.counts)
    # No op reads the steps after a request's last draft.
    logits = torch.empty(len(states), max([1, *batch.counts]), batch.vocab_size)
    heat = torch.where(temperature > 0, temperature, 1.0).repeat_interleave(counts)
    step = torch.arange(len(heat)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    logits[torch.tensor(states).repeat_interleave(counts), step] = batch.draft_probs.log().mul_(heat[:, None])
    return logits

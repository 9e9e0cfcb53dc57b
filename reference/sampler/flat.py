"""The end-to-end sampler of packed batches: logits and draft tokens of a mixed batch in, tokens per request out.

Softmax gives probabilities, each request's own generator gives random samples, and the packed ops decide. A request
consumes V exponentials for the token after its accepted drafts, then one uniform per draft token. That token is either
recovered or the bonus token, by the uniforms alone, so that the same exponentials serve both. A greedy request consumes
none. The tokens of a request therefore depend on its own generator, logits and draft tokens only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from . import ops
from .drafting import fill_with_noise, noise_dtype
from .fused import verify_greedy_drafts
from .min_p import mask_below_min_p
from .ops import PADDING_TOKEN
from .top_k_top_p import apply_top_k_top_p

_TILE = 8192


@dataclass(frozen=True, slots=True)
class SamplingTensors:
    """Sampling parameters of a batch, one entry per request; optional ones are None if no request uses them.

    Attributes:
        temperature: [B] float32; 0 is greedy.
        top_k: [B] int32; V keeps all tokens.
        top_p: [B] float32; 1 keeps all tokens.
        min_p: [B] float32; 0 keeps all tokens.
    """

    temperature: torch.Tensor
    top_k: torch.Tensor | None = None
    top_p: torch.Tensor | None = None
    min_p: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class DraftBatch:
    """The draft tokens of a batch.

    Attributes:
        counts: number of draft tokens of each request, k_i; N is their sum.
        token_ids: [N] int32; -1 is a padding token and always rejected.
        cumulative: [B] int32 inclusive cumulative sum of `counts`.
        probs: [N, V] float32 distributions of the draft tokens; None for argmax and prompt lookup.
    """

    counts: Sequence[int]
    token_ids: torch.Tensor
    cumulative: torch.Tensor
    probs: torch.Tensor | None = None

    def rows(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the logits rows of draft tokens, [N], and of bonus tokens, [B]."""
        batch = torch.arange(len(self.counts), device=device)
        bonus = self.cumulative + batch
        keep = torch.ones(self.token_ids.shape[0] + len(self.counts), dtype=torch.bool, device=device)
        keep[bonus] = False
        return keep.nonzero()[:, 0], bonus


class FlatSampler:
    """Verifies draft tokens and samples by the packed ops.

    Args:
        synthetic_rates: [K] float32 conditional acceptance rates of synthetic mode; None verifies by the models.
    """

    def __init__(self, synthetic_rates: torch.Tensor | None = None) -> None:
        self._synthetic_rates = synthetic_rates

    def greedy(self, logits: torch.Tensor, drafts: DraftBatch) -> torch.Tensor:
        """Verify a batch of greedy requests, not in synthetic mode; see `sample` for arguments and result."""
        return verify_greedy_drafts(logits, drafts)

    def sample(
        self,
        logits: torch.Tensor,
        drafts: DraftBatch,
        params: SamplingTensors,
        generators: Sequence[torch.Generator],
    ) -> torch.Tensor:
        """Verify and sample a batch that mixes greedy and sampled requests.

        Args:
            logits: [N + B, V] float32, per request the rows of its draft tokens, then its bonus row. They are divided
                by the temperature and masked in place.
            drafts: the proposed draft tokens.
            params: temperatures and limits.
            generators: one per request, on the logits' device.

        Returns:
            [B, largest k + 1] int32: accepted draft tokens, then the recovered or bonus token, then -1.
        """
        self._constrain(logits, drafts, params)
        is_greedy = params.temperature == 0
        sampled = (~is_greedy).tolist()
        device = logits.device
        vocab_size = logits.shape[1]
        target_rows, bonus_rows = drafts.rows(device)
        probs = torch.softmax(logits, dim=-1)
        drawn = [generator if draws else None for draws, generator in zip(sampled, generators, strict=True)]
        noise = fill_with_noise(torch.empty(len(drawn), vocab_size, dtype=noise_dtype(device), device=device), drawn)
        uniform = torch.zeros(drafts.token_ids.shape[0], dtype=torch.float64, device=device)
        for own, draws, generator in zip(uniform.split(list(drafts.counts)), sampled, generators, strict=True):
            if len(own) and (draws or self._synthetic_rates is not None):
                own.uniform_(generator=generator)
        bonus = (probs[bonus_rows] / noise).argmax(dim=-1)  # in the noise's type, float64 on CUDA
        if not all(sampled):
            # From logits: two of them may round to the same probability, which would change the argmax.
            argmax = logits.argmax(dim=-1)
            bonus = torch.where(is_greedy, argmax[bonus_rows], bonus)
        bonus = bonus.to(torch.int32)[:, None]
        if not len(uniform):
            return bonus
        output = _padding_tokens(drafts, device)
        target_probs = probs[target_rows]
        if not all(sampled):
            self._verify_greedy(output, drafts, argmax[target_rows], bonus, is_greedy, uniform)
        self._verify_sampled(output, drafts, target_probs, bonus, is_greedy, uniform, noise)
        return output

    def _verify_sampled(
        self,
        output: torch.Tensor,
        drafts: DraftBatch,
        target_probs: torch.Tensor,
        bonus: torch.Tensor,
        is_greedy: torch.Tensor,
        uniform: torch.Tensor,
        noise: torch.Tensor,
    ) -> None:
        """Fill the rows of sampled requests in `output`; `noise` is replaced by its reciprocal."""
        device, vocab_size = output.device, target_probs.shape[1]
        recovered = torch.empty_like(drafts.token_ids)
        shared = {
            "cu_num_draft_tokens_ptr": drafts.cumulative,
            "draft_token_ids_ptr": drafts.token_ids,
            "draft_probs_ptr": drafts.probs,
            "target_probs_ptr": target_probs,
            "vocab_size": vocab_size,
            "NO_DRAFT_PROBS": drafts.probs is None,
        }
        ops.run(
            "sample_recovered_tokens",
            device,
            output_token_ids_ptr=recovered,
            inv_q_ptr=noise.reciprocal_(),
            BLOCK_SIZE=_TILE,
            USE_FP64_GUMBEL=noise.dtype == torch.float64,
            **shared,
        )
        ops.run(
            "rejection_random_sample",
            device,
            output_token_ids_ptr=output,
            bonus_token_ids_ptr=bonus,
            recovered_token_ids_ptr=recovered,
            uniform_probs_ptr=uniform,
            is_greedy_ptr=is_greedy,
            max_spec_len=output.shape[1] - 1,
            synthetic_conditional_rates_ptr=self._synthetic_rates,
            SYNTHETIC_MODE=self._synthetic_rates is not None,
            **shared,
        )

    def _constrain(self, logits: torch.Tensor, drafts: DraftBatch, params: SamplingTensors) -> None:
        """Apply temperature, min-p, top-k and top-p in place; a request's value applies to all of its rows."""
        rows_of = torch.tensor([count + 1 for count in drafts.counts], device=logits.device)
        ends = rows_of.cumsum(0, dtype=torch.int32)
        longest = max(drafts.counts) + 1

        def expand(values: torch.Tensor, replace_from: float = 0, replace_to: float = 0) -> torch.Tensor:
            output = torch.empty(logits.shape[0], dtype=values.dtype, device=values.device)
            ops.run(
                "expand_batch_to_tokens",
                values.device,
                output_ptr=output,
                input_ptr=values,
                cu_num_tokens_ptr=ends,
                replace_from=replace_from,
                replace_to=replace_to,
                MAX_NUM_TOKENS=longest,
            )
            return output

        logits /= expand(params.temperature, replace_from=0, replace_to=1)[:, None]
        if params.min_p is not None:
            mask_below_min_p(logits, expand(params.min_p))
        if params.top_k is not None or params.top_p is not None:
            apply_top_k_top_p(
                logits,
                None if params.top_k is None else expand(params.top_k),
                None if params.top_p is None else expand(params.top_p),
                inplace=True,
            )

    def _verify_greedy(
        self,
        output: torch.Tensor,
        drafts: DraftBatch,
        target_argmax: torch.Tensor,
        bonus: torch.Tensor,
        is_greedy: torch.Tensor | None,
        uniform: torch.Tensor | None,
    ) -> None:
        ops.run(
            "rejection_greedy_sample",
            output.device,
            output_token_ids_ptr=output,
            cu_num_draft_tokens_ptr=drafts.cumulative,
            draft_token_ids_ptr=drafts.token_ids,
            target_argmax_ptr=target_argmax,
            bonus_token_ids_ptr=bonus,
            is_greedy_ptr=is_greedy,
            max_spec_len=output.shape[1] - 1,
            uniform_probs_ptr=uniform,
            synthetic_conditional_rates_ptr=self._synthetic_rates,
            SYNTHETIC_MODE=self._synthetic_rates is not None,
        )


def _padding_tokens(drafts: DraftBatch, device: torch.device) -> torch.Tensor:
    shape = (len(drafts.counts), max(drafts.counts) + 1)
    return torch.full(shape, PADDING_TOKEN, dtype=torch.int32, device=device)

"""Sampling of draft tokens: greedy requests take the argmax, others sample the drafter's distribution.

`sample_drafts` serves packed batches with generators, `sample_drafts_by_seed` slot-indexed batches with a counter-based
RNG.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import ops

_TINY = torch.finfo(torch.float32).tiny


def exponential_noise(size: int, generator: torch.Generator, device: torch.device) -> torch.Tensor:
    """Return [size] float32 samples of Exp(1), above 0; argmax of p / noise is a sample from p."""
    return torch.empty(size, device=device).exponential_(generator=generator).clamp_(min=_TINY)


def sample_drafts(
    logits: torch.Tensor, temperatures: Sequence[float], generators: Sequence[torch.Generator]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample one draft token per request.

    The draft distribution is softmax(logits / temperature). Top-k and similar limits shape only the target, which is
    lossless for any draft distribution (Leviathan et al. 2023, theorem 3.5).

    Args:
        logits: [B, V] over the target's vocabulary.
        temperatures: one per request; 0 takes the argmax.
        generators: one per request; those of sampled requests advance by V samples.

    Returns:
        Token ids [B] int64, and the probabilities that they were sampled from, [B, V] float32. Rows of greedy requests
        are undefined.
    """
    scale = torch.tensor([temperature or 1.0 for temperature in temperatures], device=logits.device)
    probs = torch.softmax(logits.float() / scale[:, None], dim=-1)
    scores = probs.clone()
    for row, temperature in enumerate(temperatures):
        if temperature:
            scores[row] /= exponential_noise(scores.shape[1], generators[row], scores.device)
    return scores.argmax(dim=-1), probs


def sample_drafts_by_seed(
    logits: torch.Tensor,
    *,
    idx_mapping: torch.Tensor,
    temperature: torch.Tensor,
    seed: torch.Tensor,
    pos: torch.Tensor,
    step: int,
    draft_logits: torch.Tensor,
) -> torch.Tensor:
    """Sample the draft token of one step for every request, and store its logits for verification.

    The random samples differ from those of a verification at the same position and step.

    Args:
        logits: [B, V] over the target's vocabulary, before temperature.
        idx_mapping: [B] int32 state of each request; -1 is padding.
        temperature: [R] float32; 0 takes the argmax.
        seed: [R] int64.
        pos: [B] int64 position of the token before the draft token.
        step: number of draft tokens of the block before this one.
        draft_logits: [R, K, V] float32; [state, step] receives the request's logits.

    Returns:
        Token ids [B] int64; 0 for padding.
    """
    token_ids = torch.zeros(logits.shape[0], dtype=torch.int64, device=logits.device)
    ops.run(
        "gumbel_sample",
        logits.device,
        sampled=token_ids,
        logits=logits,
        expanded_idx_mapping=idx_mapping,
        temperature=temperature,
        seed=seed,
        pos=pos,
        apply_temperature=True,
        is_drafting=True,
        logits_cache=draft_logits,
        logits_cache_col=torch.full_like(idx_mapping, step),
    )
    return token_ids

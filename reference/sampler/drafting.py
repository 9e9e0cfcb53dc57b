"""How a drafter draws: greedy requests take the argmax, others draw from the drafter's own distribution."""

from __future__ import annotations

from collections.abc import Sequence

import torch

_TINY = torch.finfo(torch.float32).tiny


def exponential_noise(size: int, generator: torch.Generator, device: torch.device) -> torch.Tensor:
    """Draw [size] float32 numbers from Exp(1), above 0: argmax of p / noise is a draw from p."""
    return torch.empty(size, device=device).exponential_(generator=generator).clamp_(min=_TINY)


def sample_drafts(
    logits: torch.Tensor, temperatures: Sequence[float], generators: Sequence[torch.Generator]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw one draft token a request.

    The draft distribution is softmax(logits / temperature); top-k and the like shape the target alone, which is
    lossless for any draft distribution (Leviathan et al. 2023, theorem 3.5).

    Args:
        logits: [B, V] over the target's vocabulary.
        temperatures: one a request; 0 takes the argmax.
        generators: one a request; only those of sampled requests advance, by V draws.

    Returns:
        Token ids [B] int64, and the probabilities that they were drawn from, [B, V] float32. A greedy request's row is
        of no use to anyone.
    """
    scale = torch.tensor([temperature or 1.0 for temperature in temperatures], device=logits.device)
    probs = torch.softmax(logits.float() / scale[:, None], dim=-1)
    scores = probs.clone()
    for row, temperature in enumerate(temperatures):
        if temperature:
            scores[row] /= exponential_noise(scores.shape[1], generators[row], scores.device)
    return scores.argmax(dim=-1), probs

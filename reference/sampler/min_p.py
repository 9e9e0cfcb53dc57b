"""Min-p filtering of logits: a token stays if it has at least a fraction of the most likely token's probability."""

from __future__ import annotations

import torch


def mask_below_min_p(logits: torch.Tensor, min_p: torch.Tensor) -> None:
    """Mask the logits [T, V] of other tokens with minus infinity, in place; `min_p` is [T] float32, 0 keeps all.

    Source: Nguyen et al. 2024 (arXiv 2407.01082).
    """
    floor = torch.log(min_p)[:, None] + logits.amax(dim=-1, keepdim=True)
    logits.masked_fill_(logits < floor, float("-inf"))

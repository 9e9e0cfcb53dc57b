"""Top-k and top-p in front of the fused kernels: the rows without the tokens that are dropped."""

from __future__ import annotations

from typing import Any

import torch

from .apply_top_k_top_p import apply_top_k_top_p


def limited(
    logits: Any, vocabulary: int, cu_num_logits: Any, idx_mapping: Any, temperature: Any, top_k: Any, top_p: Any
) -> Any:
    """Return the rows with minus infinity for every token that its request's limits drop.

    Top-p is over probabilities at the request's temperature, so the mask is made on tempered rows.
    """
    rows = torch.arange(logits.shape[0], device=logits.device)
    request = torch.searchsorted(cu_num_logits[1:].contiguous(), rows, right=True).clamp_(max=idx_mapping.shape[0] - 1)
    # Nobody reads the rows of padding: any state's limits will do.
    state = idx_mapping[request].clamp(min=0).long()
    scale = temperature[state]
    tempered = logits[:, :vocabulary].float() / scale.masked_fill(scale == 0, 1)[:, None]
    k = None if top_k is None else top_k[state]
    p = None if top_p is None else top_p[state]
    apply_top_k_top_p(output=tempered, logits=tempered, k=k, p=p)
    return torch.where(tempered > -torch.inf, logits[:, :vocabulary], -torch.inf)

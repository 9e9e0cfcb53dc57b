"""The fused ops behind the samplers: from raw logits to tokens in one call, the logits unchanged.

A fused op draws a token by inverse CDF from two random words, where the slot-indexed ops draw it by Gumbel-max from one
word per vocabulary entry. Drafts are accepted by the same numbers, and the distribution is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from . import ops

if TYPE_CHECKING:
    from .flat import DraftBatch
    from .request_state import RequestRows, RequestStates


def _outputs(requests: int, columns: int, device: torch.device) -> dict[str, torch.Tensor]:
    counts = torch.zeros((4, requests), dtype=torch.int32, device=device)
    names = ("num_sampled", "num_rejected", "next_token", "next_row")
    sampled = torch.full((requests, columns), ops.PLACEHOLDER, dtype=torch.int64, device=device)
    return {"sampled": sampled, **dict(zip(names, counts, strict=True))}


def verify_greedy_drafts(logits: torch.Tensor, drafts: DraftBatch) -> torch.Tensor:
    """Verify a packed batch of greedy requests.

    Args:
        logits: [N + B, V] of any dtype of the op, per request the rows of its draft tokens, then its bonus row.
        drafts: the proposed draft tokens.

    Returns:
        [B, largest k + 1] int32: accepted draft tokens, then the argmax after them, then -1.
    """
    device, requests = logits.device, len(drafts.counts)
    index = torch.arange(requests, dtype=torch.int32, device=device)
    cu_num_logits = torch.zeros(requests + 1, dtype=torch.int32, device=device)
    cu_num_logits[1:] = drafts.cumulative + index + 1
    draft_sampled = torch.zeros(logits.shape[0], dtype=torch.int32, device=device)
    if drafts.token_ids.shape[0]:
        # Draft n is the input token of the row after the one that verifies it.
        row = torch.arange(drafts.token_ids.shape[0], device=device)
        owner = torch.searchsorted(drafts.cumulative, row, right=True)
        draft_sampled[row + owner + 1] = drafts.token_ids
    outputs = _outputs(requests, max(drafts.counts) + 1, device)
    ops.run(
        "verify_greedy",
        device,
        **outputs,
        target_logits=logits,
        draft_sampled=draft_sampled,
        cu_num_logits=cu_num_logits,
        idx_mapping=index,
    )
    return outputs["sampled"].to(torch.int32)


def verify_rows(logits: torch.Tensor, rows: RequestRows, states: RequestStates) -> tuple[torch.Tensor, torch.Tensor]:
    """Verify a slot-indexed batch without min-p.

    Args:
        logits: [L, V] of the target, before temperature.
        rows: owners of the logits and draft tokens.
        states: sampling parameters of all states.

    Returns:
        Tokens [B, max_rows] int64, -1 after the last, and their counts [B] int32; padding requests have none.
    """
    outputs = _outputs(rows.idx_mapping.shape[0], rows.max_rows, logits.device)
    draft: dict[str, Any] = {} if states.draft_logits is None else {"draft_logits": states.draft_logits}
    ops.run(
        "verify_draft_logits" if draft else "verify_one_hot",
        logits.device,
        **outputs,
        **draft,
        target_logits=logits,
        draft_sampled=rows.draft_sampled,
        cu_num_logits=rows.cu_num_logits,
        idx_mapping=rows.idx_mapping,
        pos=rows.pos,
        temperature=states.temperature,
        seed=states.seed,
        top_k=states.top_k,
        top_p=states.top_p,
    )
    return outputs["sampled"], outputs["num_sampled"]

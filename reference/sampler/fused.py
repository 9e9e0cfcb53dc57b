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
    sampled = torch.full((requests, columns), ops.PADDING_TOKEN, dtype=torch.int64, device=device)
    return {"sampled": sampled, **dict(zip(names, counts, strict=True))}


def verify_greedy_drafts(logits: torch.Tensor, drafts: DraftBatch) -> torch.Tensor:
    """Verify a packed batch of greedy requests.

    Args:
        logits: [N + B, V] as `verify_greedy_rows` takes them; per request the rows of its drafts, then its bonus row.
        drafts: the proposed draft tokens.

    Returns:
        [B, largest k + 1] int32: accepted draft tokens, then the argmax after them, then -1.
    """
    device, requests = logits.device, len(drafts.counts)
    cu_num_logits = torch.zeros(requests + 1, dtype=torch.int32, device=device)
    cu_num_logits[1:] = drafts.cumulative + torch.arange(1, requests + 1, dtype=torch.int32, device=device)
    draft_sampled = torch.zeros(logits.shape[0], dtype=torch.int32, device=device)
    if drafts.token_ids.shape[0]:
        # Draft n is the input token of the row after the one that verifies it.
        row = torch.arange(drafts.token_ids.shape[0], device=device)
        owner = torch.searchsorted(drafts.cumulative, row, right=True)
        draft_sampled[row + owner + 1] = drafts.token_ids
    return verify_greedy_rows(logits, draft_sampled, cu_num_logits, max(drafts.counts) + 1)


def verify_greedy_rows(
    logits: torch.Tensor, input_ids: torch.Tensor, cu_num_logits: torch.Tensor, max_rows: int
) -> torch.Tensor:
    """Verify greedy requests whose drafts stand among the target's input tokens.

    Args:
        logits: [L, V] of any dtype of the op, or float64, which is rounded to float32.
        input_ids: [L] int32 input token of each row; a request's drafts follow its first token.
        cu_num_logits: [B + 1] int32 first row of each request, and the end of the last one.
        max_rows: maximum number of rows of a request.

    Returns:
        [B, `max_rows`] int32: accepted draft tokens, then the argmax after them, then -1.
    """
    requests = cu_num_logits.shape[0] - 1
    outputs = _outputs(requests, max_rows, logits.device)
    ops.run(
        "verify_greedy",
        logits.device,
        **outputs,
        # Kernels take no float64, which the reference model and tests of several ranks compute in.
        target_logits=logits.float() if logits.dtype == torch.float64 else logits,
        draft_sampled=input_ids,
        cu_num_logits=cu_num_logits,
        idx_mapping=torch.arange(requests, dtype=torch.int32, device=logits.device),
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

"""Log-probabilities of emitted tokens: one row per token, whatever the token's kind."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from verispec.engines.protocol.generation import TokenLogprobs


def row_logprobs(
    logits: torch.Tensor, token_ids: torch.Tensor, top: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return log-probabilities without reading a device's memory from the host.

    Args:
        logits: [L, V].
        token_ids: [L] int64, the token of each row.
        top: number of most likely tokens to return.

    Returns:
        The log-probability of each row's token [L], and the ids and log-probabilities of the `top` most likely ones in
        falling order, [L, top] each.
    """
    logprobs = torch.log_softmax(logits.float(), dim=-1)
    values, ids = logprobs.topk(min(top, logprobs.shape[1]), dim=-1)
    return logprobs.gather(1, token_ids[:, None])[:, 0], ids, values


def token_logprobs(own: torch.Tensor, ids: torch.Tensor, values: torch.Tensor) -> list[TokenLogprobs]:
    """Return the result of `row_logprobs` as one entry per row."""
    return [
        TokenLogprobs(sampled, tuple(zip(best_ids, best, strict=True)))
        for sampled, best_ids, best in zip(own.tolist(), ids.tolist(), values.tolist(), strict=True)
    ]


def gather_logprobs(
    logits: torch.Tensor, emitted: Sequence[Sequence[int]], counts: Sequence[int], wanted: Sequence[int | None]
) -> list[list[TokenLogprobs]]:
    """Return the log-probabilities of the tokens that each request emitted.

    Args:
        logits: [N + B, V]: for each request in turn the rows of its drafts, then its bonus row. The first emitted
            token belongs to the first row, and so on: a recovered token to the row of the rejected draft.
        emitted: token ids of each request.
        counts: drafts of each request.
        wanted: number of most likely tokens that each request wants; None wants nothing, and gets an empty list.
    """
    results: list[list[TokenLogprobs]] = []
    start = 0
    for tokens, drafts, top in zip(emitted, counts, wanted, strict=True):
        rows: list[TokenLogprobs] = []
        if top is not None:
            ids_of_request = torch.tensor(tokens, device=logits.device)
            own, ids, values = row_logprobs(logits[start : start + len(tokens)], ids_of_request, top)
            rows = token_logprobs(own, ids, values)
        results.append(rows)
        start += drafts + 1
    return results

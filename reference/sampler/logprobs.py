"""Log-probabilities of emitted tokens: one row a token, whatever the token's kind."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from verispec.engines.generation import TokenLogprobs


def gather_logprobs(
    logits: torch.Tensor, emitted: Sequence[Sequence[int]], counts: Sequence[int], wanted: Sequence[int | None]
) -> list[list[TokenLogprobs]]:
    """Return the log-probabilities of the tokens that each request emitted.

    Args:
        logits: [N + B, V]: for each request in turn the rows of its drafts, then its bonus row. The first emitted
            token belongs to the first row, and so on: a recovered token to the row of the rejected draft.
        emitted: token ids of each request.
        counts: drafts of each request.
        wanted: how many most likely tokens each request wants; None wants nothing, and gets an empty list.
    """
    results: list[list[TokenLogprobs]] = []
    start = 0
    for tokens, drafts, top in zip(emitted, counts, wanted, strict=True):
        rows: list[TokenLogprobs] = []
        if top is not None:
            logprobs = torch.log_softmax(logits[start : start + len(tokens)].float(), dim=-1)
            values, ids = logprobs.topk(min(top, logprobs.shape[1]), dim=-1)
            rows = [
                TokenLogprobs(float(row[token]), tuple(zip(best_ids, best, strict=True)))
                for row, token, best, best_ids in zip(logprobs, tokens, values.tolist(), ids.tolist(), strict=True)
            ]
        results.append(rows)
        start += drafts + 1
    return results

"""From the logits of a step to the tokens of its requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from verispec.engines.protocol.generation import TokenLogprobs
from verispec.reference.sampler.logprobs import gather_logprobs
from verispec.reference.sampler.processors import TokenHistory, process_logits

from .sampling import Sampling
from .scheduler import Scheduled


@dataclass(frozen=True, slots=True)
class Verified:
    """Result of a verification.

    `token_ids` [B, largest k + 1] int32 ends each row with -1, `emitted` holds the same rows without these, `logprobs`
    one list a request, empty for who did not ask.
    """

    token_ids: torch.Tensor
    emitted: list[list[int]]
    logprobs: list[list[TokenLogprobs]]


def verify(sampling: Sampling, logits: torch.Tensor, parts: Sequence[Scheduled], logprobs_mode: str) -> Verified:
    """Verify the drafts of `parts` and sample one token more for each.

    Args:
        sampling: sampling part of the engine.
        logits: [N + B, V]: for each part in turn the rows of its drafts, then its bonus row. May be written over.
        parts: those of the step that sample.
        logprobs_mode: raw or processed.
    """
    requests = [part.request for part in parts]
    if all(request.plain for request in requests):
        sampled = sampling.greedy(logits, parts)
        return Verified(sampled, _emitted(sampled), [[] for _ in requests])
    logits = logits.float()
    wanted = [request.params.logprobs for request in requests]
    raw = logits.clone() if any(count is not None for count in wanted) and logprobs_mode == "raw" else logits
    if any(request.is_processed for request in requests):
        drafts = [part.draft_token_ids.tolist() for part in parts]
        histories = [
            TokenHistory(
                request.params,
                request.output_token_ids.tolist(),
                request.stop_token_ids,
                request.grammar_rows(proposed, logits.shape[1]),
            )
            for request, proposed in zip(requests, drafts, strict=True)
        ]
        process_logits(logits, histories, drafts)
    sampled = sampling.sample(logits, parts)
    emitted = _emitted(sampled)
    return Verified(sampled, emitted, gather_logprobs(raw, emitted, [part.num_drafts for part in parts], wanted))


def _emitted(sampled: torch.Tensor) -> list[list[int]]:
    return [[token for token in row if token >= 0] for row in sampled.tolist()]

"""From the logits of a step to the tokens of its requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from verispec.engines.generation import TokenLogprobs
from verispec.reference.sampler.flat import DraftBatch, FlatSampler, SamplingTensors
from verispec.reference.sampler.logprobs import gather_logprobs
from verispec.reference.sampler.processors import History, process_logits

from .request import RequestState
from .scheduler import Scheduled

Upload = Callable[[np.ndarray], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Verified:
    """What verification gave.

    `token_ids` [B, largest k + 1] int32 ends each row with -1, `emitted` holds the same rows without these, `logprobs`
    one list a request, empty for who did not ask.
    """

    token_ids: torch.Tensor
    emitted: list[list[int]]
    logprobs: list[list[TokenLogprobs]]


def verify(
    sampler: FlatSampler, logits: torch.Tensor, parts: Sequence[Scheduled], upload: Upload, logprobs_mode: str
) -> Verified:
    """Verify the drafts of `parts` and sample one token more for each.

    Args:
        sampler: of the engine.
        logits: [N + B, V]: for each part in turn the rows of its drafts, then its bonus row. May be written over.
        parts: those of the step that sample.
        upload: makes a tensor on the logits' device.
        logprobs_mode: raw or processed.
    """
    requests = [part.request for part in parts]
    counts = [part.num_drafts for part in parts]
    proposed = [
        request.tokens[request.num_tokens : request.num_tokens + count]
        for request, count in zip(requests, counts, strict=True)
    ]
    token_ids = np.concatenate(proposed).astype(np.int32)
    drafts = DraftBatch(
        counts, upload(token_ids), upload(np.cumsum(counts, dtype=np.int32)), _draft_probs(parts, logits)
    )
    if all(request.plain for request in requests):
        sampled = sampler.greedy(logits, drafts)
        return Verified(sampled, _emitted(sampled), [[] for _ in requests])
    logits = logits.float()
    wanted = [request.params.logprobs for request in requests]
    raw = logits.clone() if any(count is not None for count in wanted) and logprobs_mode == "raw" else logits
    histories = [
        History(request.params, request.output_token_ids.tolist(), request.stop_token_ids) for request in requests
    ]
    process_logits(logits, histories, [ids.tolist() for ids in proposed])
    sampled = sampler.sample(
        logits, drafts, _sampling_tensors(requests, logits), [request.generator for request in requests]
    )
    emitted = _emitted(sampled)
    return Verified(sampled, emitted, gather_logprobs(raw, emitted, counts, wanted))


def _emitted(sampled: torch.Tensor) -> list[list[int]]:
    return [[token for token in row if token >= 0] for row in sampled.tolist()]


def _draft_probs(parts: Sequence[Scheduled], logits: torch.Tensor) -> torch.Tensor | None:
    """Return what the drafts were drawn from, [N, V]; zeros for a greedy request, where nothing was drawn."""
    if all(part.request.draft_probs is None for part in parts):
        return None
    rows = [
        logits.new_zeros(part.num_drafts, logits.shape[1], dtype=torch.float32)
        if part.request.draft_probs is None
        else part.request.draft_probs[: part.num_drafts]
        for part in parts
    ]
    return torch.cat(rows)


def _sampling_tensors(requests: Sequence[RequestState], logits: torch.Tensor) -> SamplingTensors:
    device, vocab_size = logits.device, logits.shape[1]
    params = [request.params for request in requests]

    def column(values: list[float], off: float, dtype: torch.dtype) -> torch.Tensor | None:
        return None if all(value == off for value in values) else torch.tensor(values, dtype=dtype, device=device)

    return SamplingTensors(
        temperature=torch.tensor([p.temperature for p in params], dtype=torch.float32, device=device),
        top_k=column([min(p.top_k or vocab_size, vocab_size) for p in params], vocab_size, torch.int32),
        top_p=column([p.top_p for p in params], 1, torch.float32),
        min_p=column([p.min_p for p in params], 0, torch.float32),
    )

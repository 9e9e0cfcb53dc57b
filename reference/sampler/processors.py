"""Logits processors: what a request forbids, requires or discourages, before temperature.

The history of a row is the output so far and, for the row of draft j, the drafts before it: drafts count as if they had
been emitted, because the row is used only if they are. Order: grammar, allowed ids, bad words, min tokens, logit bias,
penalties (vllm 0.33.0, ``vllm.v1.sample.sampler.Sampler``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from verispec.engines.protocol.generation import GenerationRequest

_NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class TokenHistory:
    """Input of a request's processors.

    Attributes:
        params: of the request.
        output_token_ids: emitted so far.
        stop_token_ids: tokens that `min_tokens` forbids.
        allowed_rows: [k + 1, V] bool, the tokens that a grammar allows at each row; None without a grammar.
    """

    params: GenerationRequest
    output_token_ids: Sequence[int]
    stop_token_ids: Collection[int]
    allowed_rows: torch.Tensor | None = None


def needs_processing(params: GenerationRequest) -> bool:
    """Return True if a request changes its logits before temperature."""
    return bool(
        params.allowed_token_ids
        or params.bad_words
        or params.min_tokens
        or params.logit_bias
        or params.repetition_penalty != 1
        or params.presence_penalty
        or params.frequency_penalty
    )


def process_logits(logits: torch.Tensor, histories: Sequence[TokenHistory], drafts: Sequence[Sequence[int]]) -> None:
    """Apply the processors of every request in place.

    Args:
        logits: [N + B, V] float32: for each request in turn the rows of its drafts, then its bonus row.
        histories: one a request.
        drafts: the draft token ids of each request.
    """
    row = 0
    for history, proposed in zip(histories, drafts, strict=True):
        if history.allowed_rows is not None:
            rows = logits[row : row + len(proposed) + 1]
            rows.masked_fill_(~history.allowed_rows.to(logits.device), _NEVER)
        if needs_processing(history.params):
            for count in range(len(proposed) + 1):
                _process_row(logits[row + count], history, [*history.output_token_ids, *proposed[:count]])
        row += len(proposed) + 1


def _process_row(logits: torch.Tensor, history: TokenHistory, output: list[int]) -> None:
    params = history.params
    if params.allowed_token_ids:
        forbidden = torch.ones_like(logits, dtype=torch.bool)
        forbidden[list(params.allowed_token_ids)] = False
        logits.masked_fill_(forbidden, _NEVER)
    for *prefix, last in params.bad_words:
        if len(prefix) <= len(output) and output[len(output) - len(prefix) :] == prefix:
            logits[last] = _NEVER
    if len(output) < params.min_tokens and history.stop_token_ids:
        logits[list(history.stop_token_ids)] = _NEVER
    for token, bias in params.logit_bias.items():
        logits[token] += bias
    _penalize(logits, params, output)


def _penalize(logits: torch.Tensor, params: GenerationRequest, output: list[int]) -> None:
    """Repetition over prompt and output (Keskar et al. 2019); presence and frequency over the output."""
    if params.repetition_penalty != 1:
        seen = torch.tensor(sorted({*params.prompt_token_ids, *output}), device=logits.device)
        values = logits[seen]
        logits[seen] = torch.where(values > 0, values / params.repetition_penalty, values * params.repetition_penalty)
    if output and (params.presence_penalty or params.frequency_penalty):
        emitted, counts = torch.tensor(output, device=logits.device).unique(return_counts=True)
        logits[emitted] -= params.frequency_penalty * counts + params.presence_penalty

"""Logits processors: what a request forbids, requires or discourages, before temperature.

The history of a row is the output so far and, for the row of draft j, the drafts before it: drafts count as if they had
been emitted, because the row is used only if they are. Order: grammar, allowed ids, bad words, min tokens, logit bias,
penalties (vllm 0.33.0, ``vllm.v1.sample.sampler.Sampler``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import torch

from verispec.engines.protocol.generation import GenerationRequest

_NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class TokenHistory:
    """Input of a request's processors.

    Attributes:
        params: parameters of the request.
        output_token_ids: tokens emitted so far.
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

    The host lists what changes in all rows; a processor is then a few launches, however many requests there are.

    Args:
        logits: [N + B, V] float32: for each request in turn the rows of its drafts, then its bonus row.
        histories: one per request.
        drafts: the draft token ids of each request.
    """
    changes = _Changes()
    row = 0
    for history, proposed in zip(histories, drafts, strict=True):
        if history.allowed_rows is not None:
            rows = logits[row : row + len(proposed) + 1]
            rows.masked_fill_(~history.allowed_rows.to(logits.device), _NEVER)
        if needs_processing(history.params):
            for count in range(len(proposed) + 1):
                changes.add(row + count, history, [*history.output_token_ids, *proposed[:count]])
        row += len(proposed) + 1
    changes.apply(logits)


@dataclass(slots=True)
class _Changes:
    """The entries of the logits that each processor changes, as (row, token, numbers of the processor)."""

    allowed: list[tuple[int, int]] = field(default_factory=list)
    forbidden: list[tuple[int, int]] = field(default_factory=list)
    biased: list[tuple[int, int, float]] = field(default_factory=list)
    repeated: list[tuple[int, int, float]] = field(default_factory=list)
    emitted: list[tuple[int, int, float, float, int]] = field(default_factory=list)

    def add(self, row: int, history: TokenHistory, output: list[int]) -> None:
        """List the changes of one row that follows `output`."""
        params = history.params
        self.allowed += [(row, token) for token in params.allowed_token_ids or ()]
        last = output[-1] if output else None
        for word in params.bad_words:
            if len(word) == 1 or (word[-2] == last and output[1 - len(word) :] == list(word[:-1])):
                self.forbidden.append((row, word[-1]))
        if len(output) < params.min_tokens:
            self.forbidden += [(row, token) for token in history.stop_token_ids]
        self.biased += [(row, token, bias) for token, bias in params.logit_bias.items()]
        if params.repetition_penalty != 1:
            seen = {*params.prompt_token_ids, *output}
            self.repeated += [(row, token, params.repetition_penalty) for token in seen]
        if params.presence_penalty or params.frequency_penalty:
            penalties = params.presence_penalty, params.frequency_penalty
            self.emitted += [(row, token, *penalties, count) for token, count in Counter(output).items()]

    def apply(self, logits: torch.Tensor) -> None:
        """Apply the processors to the logits in place, one after the other."""
        if self.allowed:
            at, _ = _entries(self.allowed, logits)
            kept = logits[at]
            logits[at[0].unique()] = _NEVER
            logits[at] = kept
        if self.forbidden:
            at, _ = _entries(self.forbidden, logits)
            logits[at] = _NEVER
        if self.biased:
            at, (bias,) = _entries(self.biased, logits)
            logits[at] += bias
        if self.repeated:  # over prompt and output (Keskar et al. 2019)
            at, (penalty,) = _entries(self.repeated, logits)
            values = logits[at]
            logits[at] = torch.where(values > 0, values / penalty, values * penalty)
        if self.emitted:  # over the output
            at, (presence, frequency, counts) = _entries(self.emitted, logits)
            logits[at] -= frequency * counts + presence


def _entries(
    changes: Sequence[tuple[float, ...]], logits: torch.Tensor
) -> tuple[tuple[torch.Tensor, torch.Tensor], list[torch.Tensor]]:
    """Return the index of the changed entries and, in the dtype of the logits, the numbers that belong to each."""
    listed = np.fromiter(chain.from_iterable(changes), np.float64).reshape(len(changes), -1)  # ids are exact in float64
    rows, tokens, *numbers = torch.from_numpy(listed).to(logits.device).unbind(1)
    return (rows.long(), tokens.long()), [column.to(logits.dtype) for column in numbers]

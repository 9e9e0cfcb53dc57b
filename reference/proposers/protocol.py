"""The protocol of a proposer: its input after a verified step, and its output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

DrawDrafts = Callable[[torch.Tensor, torch.Tensor, int], tuple[torch.Tensor, torch.Tensor | None]]
"""Samples one draft token per request.

Takes logits [B, V] over the target's vocabulary, the position [B] int64 of the token before each draft token, and
the number of draft tokens before it. Returns ids [B] and, if verification needs them, the probabilities [B, V].
"""


@dataclass(frozen=True, slots=True)
class VerifiedStep:
    """A step that the target just verified: B requests, T tokens, rejected draft tokens included.

    Attributes:
        token_ids: [T] int32 input of the target.
        positions: [T] int64 position of each token.
        query_lens: tokens of each request.
        query_start_loc: [B + 1] int32 exclusive cumulative sum of `query_lens`.
        block_table: [B, blocks] int32.
        aux_hidden_states: [T, .] auxiliary states of the target; None unless the proposer asked for them.
        cu_num_draft_tokens: [B] int32 inclusive cumulative sum of the verified draft tokens.
        sampled_token_ids: [B, maximum draft tokens + 1] int32 output of the sampler, -1 after the last token.
        discarded: [B] bool, requests whose prompt continues in the next step, so that nothing was sampled for them.
        backup_token_ids: [B] int32 next prompt token of these requests.
        numbers: number of each request among all that the runner has had.
        prompt_lens: prompt tokens of each request.
        sequences: prompt and output of each request, the sampled tokens included.
        context_lens: known tokens of each sequence for the positions computed so far, the next one included.
        num_drafts: draft tokens that each request can use; if none can, a drafter with a KV cache only fills it.
        draw: samples the draft tokens of a model; None if every request wants the most likely token.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    query_lens: np.ndarray
    query_start_loc: torch.Tensor
    block_table: torch.Tensor
    aux_hidden_states: torch.Tensor | None
    cu_num_draft_tokens: torch.Tensor
    sampled_token_ids: torch.Tensor
    discarded: torch.Tensor
    backup_token_ids: torch.Tensor
    numbers: Sequence[int]
    prompt_lens: Sequence[int]
    sequences: Sequence[np.ndarray]
    context_lens: np.ndarray
    num_drafts: Sequence[int]
    draw: DrawDrafts | None

    @property
    def depth(self) -> int:
        """Maximum number of draft tokens of a request."""
        return max(self.num_drafts)


@dataclass(frozen=True, slots=True)
class Drafts:
    """Draft tokens of every request, empty if none were found.

    Attributes:
        probs: [B, K, V] distributions that the draft tokens were sampled from; None for argmax and prompt lookup.
    """

    token_ids: list[list[int]]
    probs: torch.Tensor | None = None


class Proposer(Protocol):
    """Proposes draft tokens for the requests of a step.

    Attributes:
        lookahead: KV slots that it writes after the last token of a step.
        reads_last_tokens: True if it learns from the last tokens of a request too, when nothing is left to draft.
        catches_up: True if it can read a request's tokens in a later step, before it drafts for the request again.
    """

    lookahead: int
    reads_last_tokens: bool
    catches_up: bool

    def propose(self, step: VerifiedStep) -> Drafts:
        """Return draft tokens for the next step."""

"""What a proposer is given after a step, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

DrawDrafts = Callable[[torch.Tensor, torch.Tensor, int], tuple[torch.Tensor, torch.Tensor | None]]
"""Draws one draft a request: from logits [B, V] over the target's vocabulary, the position [B] int64 of the token that
each draft follows, and how many drafts come before it. Returns the ids [B] and, where the verification must be told,
the probabilities that they were drawn from, [B, V]."""


@dataclass(frozen=True, slots=True)
class VerifiedStep:
    """A step of the target that was just verified: B requests, T tokens, rejected drafts still among them.

    Attributes:
        token_ids: [T] int32 input of the target, and `positions` [T] int64 of it.
        query_lens: tokens of each request, and `query_start_loc` [B + 1] int32 their exclusive cumulative sum.
        block_table: [B, blocks] int32.
        aux_hidden_states: [T, .] auxiliary states of the target; None unless the proposer asked for them.
        cu_num_draft_tokens: [B] int32 inclusive cumulative sum of the drafts that were verified.
        sampled_token_ids: [B, most drafts + 1] int32 as the sampler gave them, -1 behind the last.
        discarded: [B] bool, requests whose prompt goes on in the next step: nothing was sampled for them.
        backup_token_ids: [B] int32 next token of the prompt of these.
        sequences: prompt and output of each request, the sampled tokens included.
        context_lens: tokens of each sequence that are known for the positions computed so far, the next one included.
        wants_drafts: which requests can use drafts in the next step.
        draw: draws the drafts of a model; None when all that are wanted are its most likely tokens.
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
    sequences: Sequence[np.ndarray]
    context_lens: np.ndarray
    wants_drafts: Sequence[bool]
    draw: DrawDrafts | None


@dataclass(frozen=True, slots=True)
class Drafts:
    """Drafts of every request, empty where none could be found.

    `probs` [B, K, V] is what the drafts were drawn from, and None when they were not drawn (argmax, prompt lookup).
    """

    token_ids: list[list[int]]
    probs: torch.Tensor | None = None


class Proposer(Protocol):
    """Proposes drafts for the requests of a step.

    Attributes:
        lookahead: KV slots that it writes behind the last token of a step.
    """

    lookahead: int

    def propose(self, step: VerifiedStep) -> Drafts: ...

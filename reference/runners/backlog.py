"""Tokens that a drafter has not read yet: with `num_speculative_tokens="auto"` it reads a request's when it drafts.

Until then a request keeps the target's hidden states that a head will read. A request for which drafting never pays
costs no pass of the drafter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from verispec.reference.proposers.protocol import DrawDrafts, VerifiedStep

from .request import RequestState
from .scheduler import Scheduled
from .step_inputs import block_table

Upload = Callable[[np.ndarray], torch.Tensor]


def keep_states(scheduled: Sequence[Scheduled], states: torch.Tensor) -> None:
    """Keep the target's states of the tokens that this step computed; rejected drafts are not among them.

    Args:
        scheduled: the step, after its tokens count as computed.
        states: [T, .] auxiliary states of all rows of the step.
    """
    start = 0
    for part in scheduled:
        rejected = part.num_drafts - part.request.steps[-1].accepted if part.num_drafts else 0
        end = start + part.num_tokens
        part.request.unread_states.append((states, start, end - rejected))
        start = end


def read_backlog(
    requests: Sequence[RequestState], num_drafts: Sequence[int], draw: DrawDrafts | None, upload: Upload
) -> VerifiedStep:
    """Return a step with all tokens of `requests` that the drafter has not read, and count them as read.

    Args:
        requests: requests whose sequences are computed up to the last token.
        num_drafts: drafts of each request.
        draw: function that draws the drafts.
        upload: function that returns a tensor of an array on the runner's device.
    """
    starts = np.array([request.num_read for request in requests])
    lens = np.array([request.num_computed for request in requests]) - starts
    ends = np.cumsum(lens)
    unread = [request.tokens[request.num_read : request.num_computed] for request in requests]
    states = [rows[start:end] for request in requests for rows, start, end in request.unread_states]
    last = np.array([[request.tokens[request.num_computed]] for request in requests], dtype=np.int32)
    step = VerifiedStep(
        token_ids=upload(np.concatenate(unread).astype(np.int32)),
        positions=upload(np.arange(ends[-1]) + np.repeat(starts - (ends - lens), lens)),
        query_lens=lens,
        query_start_loc=upload(np.concatenate(([0], ends)).astype(np.int32)),
        block_table=upload(block_table(requests)),
        aux_hidden_states=torch.cat(states) if states else None,
        cu_num_draft_tokens=upload(np.zeros(len(requests), dtype=np.int32)),
        sampled_token_ids=upload(last),
        discarded=upload(np.zeros(len(requests), dtype=bool)),
        backup_token_ids=upload(last[:, 0].copy()),
        numbers=[request.number for request in requests],
        prompt_lens=[request.num_prompt_tokens for request in requests],
        sequences=[request.tokens[: request.num_tokens] for request in requests],
        context_lens=np.array([request.num_tokens for request in requests]),
        num_drafts=num_drafts,
        draw=draw,
    )
    for request in requests:
        request.num_read = request.num_computed
        request.unread_states.clear()
    return step

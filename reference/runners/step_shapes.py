"""The shapes that steps are recorded for as graphs: requests and keys are rounded up, and tokens of prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from verispec.reference.models.decode_graphs import FEWEST_KEYS, MOST_REQUESTS, MOST_TOKENS, power_of_two

from .scheduler import Scheduled

MOST_PROMPT_TOKENS = 2048
"""Tokens of the largest step of prompts that is recorded, padding included; launches of larger ones matter less."""
MOST_PADDING = 4
"""Tokens of a recorded step of prompts, for each token that is no padding."""


class Shape(NamedTuple):
    """The shape that a graph is recorded for: requests and keys are rounded up, and tokens of prompts.

    Attributes:
        width: tokens that the step may yield of a request; 1 after a prompt, else all its tokens are verified.
        limits: names of the limits that a request of the step has; None if every request takes its likeliest tokens.
        draws: True if the next drafts are drawn.
    """

    requests: int
    tokens: int
    width: int
    keys: int
    drafts: int
    limits: tuple[str, ...] | None = None
    draws: bool = False


def shape_of(scheduled: Sequence[Scheduled], drafts: int) -> Shape | None:
    """Return the shape of a greedy step; None if it is none that is recorded."""
    requests = power_of_two(len(scheduled))
    if requests > MOST_REQUESTS or not all(part.samples and part.request.unprocessed for part in scheduled):
        return None
    if all(part.num_tokens == part.num_drafts + 1 for part in scheduled):
        tokens = width = max(drafts, *(part.num_drafts for part in scheduled)) + 1
        if tokens > MOST_TOKENS:
            return None
    else:
        tokens, width = power_of_two(max(part.num_tokens for part in scheduled)), 1
        total = sum(part.num_tokens for part in scheduled)
        if requests * tokens > min(MOST_PROMPT_TOKENS, MOST_PADDING * total):
            return None
        if any(part.num_drafts or part.request.params.prompt_logprobs is not None for part in scheduled):
            return None
    # After the longest sequence come its drafts, the token after them, and the next drafts.
    keys = max(part.request.num_computed for part in scheduled) + tokens + 1 + drafts
    return Shape(requests, tokens, width, max(FEWEST_KEYS, power_of_two(keys)), drafts)

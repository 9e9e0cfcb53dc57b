"""Prompt lookup: the tokens that followed the latest earlier occurrence of the sequence's suffix.

Source: Saxena 2023, "Prompt Lookup Decoding". The longest suffix wins, and of its earlier occurrences the latest.
"""

from __future__ import annotations

import numpy as np

from .protocol import Drafts, VerifiedStep


def lookup(sequence: np.ndarray, shortest: int, longest: int, num_drafts: int) -> list[int]:
    """Return up to `num_drafts` tokens after the latest earlier occurrence of the longest matching suffix.

    Args:
        sequence: token ids.
        shortest: minimum suffix length in tokens.
        longest: maximum suffix length in tokens.
        num_drafts: maximum number of tokens to return.

    Returns:
        Token ids; empty if no suffix occurs earlier.
    """
    for length in range(min(longest, len(sequence) - 1), shortest - 1, -1):
        windows = np.lib.stride_tricks.sliding_window_view(sequence[:-1], length)
        places = np.flatnonzero((windows == sequence[-length:]).all(axis=1))
        if len(places):
            start = int(places[-1]) + length
            found: list[int] = sequence[start : start + num_drafts].tolist()
            return found
    return []


class NgramProposer:
    """Drafts by prompt lookup; needs no model and no KV cache."""

    lookahead = 0
    reads_last_tokens = False

    def __init__(self, shortest: int, longest: int) -> None:
        self._shortest = shortest
        self._longest = longest

    def propose(self, step: VerifiedStep) -> Drafts:
        """Return draft tokens for the requests that can use them."""
        return Drafts(
            [
                lookup(sequence, self._shortest, self._longest, step.num_drafts) if wanted else []
                for sequence, wanted in zip(step.sequences, step.wants_drafts, strict=True)
            ]
        )

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
    # A search in bytes is many times faster than comparing windows; a hit counts only where a token begins.
    size = sequence.itemsize
    data = np.ascontiguousarray(sequence).tobytes()
    earlier = len(data) - size
    for length in range(min(longest, len(sequence) - 1), shortest - 1, -1):
        suffix = data[len(data) - length * size :]
        at = data.rfind(suffix, 0, earlier)
        while at % size and at > 0:
            at = data.rfind(suffix, 0, at + len(suffix) - 1)
        if at >= 0:
            start = at // size + length
            found: list[int] = sequence[start : start + num_drafts].tolist()
            return found
    return []


class NgramProposer:
    """Drafts by prompt lookup; needs no model and no KV cache."""

    lookahead = 0
    reads_last_tokens = False
    catches_up = False

    def __init__(self, shortest: int, longest: int) -> None:
        self._shortest = shortest
        self._longest = longest

    def propose(self, step: VerifiedStep) -> Drafts:
        """Return draft tokens for the requests that can use them."""
        return Drafts(
            [
                lookup(sequence, self._shortest, self._longest, wanted) if wanted else []
                for sequence, wanted in zip(step.sequences, step.num_drafts, strict=True)
            ]
        )

"""Prompt lookup: the tokens that followed the latest earlier occurrence of the sequence's suffix.

Source: Saxena 2023, "Prompt Lookup Decoding". The longest suffix wins, and of its earlier occurrences the latest.
"""

from __future__ import annotations

import numpy as np

from .protocol import Drafts, VerifiedStep


def lookup(sequence: np.ndarray, shortest: int, longest: int, num_drafts: int) -> list[int]:
    """Return up to `num_drafts` tokens after the latest earlier occurrence of the longest matching suffix.

    Args:
        sequence: token ids below 1,114,111, the number of characters that there are; at least one.
        shortest: minimum suffix length in tokens.
        longest: maximum suffix length in tokens.
        num_drafts: maximum number of tokens to return.

    Returns:
        Token ids; empty if no suffix occurs earlier.
    """
    # A search in a string, one character per token, is many times faster than comparing windows. No character is 0,
    # as NumPy drops zeros at the end of a string.
    text = str((sequence + 1).astype("<u4").view(f"<U{len(sequence)}")[0])
    for length in range(min(longest, len(text) - 1), shortest - 1, -1):
        at = text.rfind(text[-length:], 0, len(text) - 1)
        if at >= 0:
            found: list[int] = sequence[at + length : at + length + num_drafts].tolist()
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

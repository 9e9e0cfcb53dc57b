"""Prompt lookup: what followed the last time that the sequence ended like this.

Source: Saxena 2023, "Prompt Lookup Decoding"; the longest suffix wins, and of its earlier places the latest.
"""

from __future__ import annotations

import numpy as np

from .protocol import Drafts, VerifiedStep


def lookup(sequence: np.ndarray, shortest: int, longest: int, num_drafts: int) -> list[int]:
    """Return the up to `num_drafts` tokens behind the latest earlier place of the longest matching suffix.

    Suffixes of `longest` down to `shortest` tokens are tried; no match, or too short a sequence, gives [].
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

    def __init__(self, num_drafts: int, shortest: int, longest: int) -> None:
        self._num_drafts = num_drafts
        self._shortest = shortest
        self._longest = longest

    def propose(self, step: VerifiedStep) -> Drafts:
        return Drafts(
            [
                lookup(sequence, self._shortest, self._longest, self._num_drafts) if wanted else []
                for sequence, wanted in zip(step.sequences, step.wants_drafts, strict=True)
            ]
        )

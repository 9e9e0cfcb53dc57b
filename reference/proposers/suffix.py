"""Suffix decoding: the continuation that most often followed the text's suffix, in the text itself or in any output.

Source: Oliaro et al. 2024, "SuffixDecoding" (arXiv 2411.04975); limits and their names as in vLLM 0.32.0, which calls
Arctic Inference 0.3.0. A suffix tree finds the same continuations faster where texts are long; arrays hold them here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .protocol import Drafts, VerifiedStep

_END = -1
"""Stands behind every text, so that no match and no continuation crosses it."""


@dataclass(frozen=True, slots=True)
class SuffixLimits:
    """Limits of one draft.

    Attributes:
        max_depth: most tokens of a match and its continuation together.
        max_factor: most draft tokens per matched token.
        min_probability: least estimated probability that a draft token and all before it follow the match.
    """

    max_depth: int
    max_factor: float
    min_probability: float


def most_frequent_continuation(
    texts: np.ndarray, context: np.ndarray, num_drafts: int, limits: SuffixLimits
) -> tuple[list[int], float]:
    """Return the draft with the highest score over all lengths of the matched suffix; of equals the longest match.

    The score is the sum of the estimated probabilities of its tokens: the expected number of accepted ones.

    Args:
        texts: token ids, -1 behind each text.
        context: token ids of the sequence, at least one.
        num_drafts: maximum number of tokens to return.
        limits: further limits.

    Returns:
        Token ids and their score; nothing and 0 if no suffix occurs.
    """
    best: tuple[list[int], float] = [], 0.0
    context = context[-limits.max_depth :]
    ends = np.flatnonzero(texts == context[-1])
    for length in range(1, len(context)):
        starts = ends - length + 1
        ends = ends[(starts >= 0) & (texts[starts] == context[-length])]
        if not len(ends):
            break  # and no longer suffix occurs either
        # A factor of 1.1 times 10 tokens is 11 and not 10.999...
        room = min(num_drafts, int(length * limits.max_factor + 1e-6), limits.max_depth - length)
        found = _follow(texts, ends, room, limits.min_probability)
        if found[1] >= best[1]:
            best = found
    return best


def _follow(texts: np.ndarray, ends: np.ndarray, room: int, min_probability: float) -> tuple[list[int], float]:
    """Return up to `room` tokens, each the most frequent one after those before it, and their score."""
    tokens: list[int] = []
    score, probability = 0.0, 1.0
    while len(tokens) < room:
        following = texts[ends + 1]
        ids, counts = np.unique(following[following != _END], return_counts=True)
        if not len(ids):
            break
        token, count = int(ids[counts.argmax()]), int(counts.max())
        probability *= count / len(ends)
        if probability < min_probability:
            break
        tokens.append(token)
        score += probability
        ends = ends[following == token] + 1
    return tokens, score


class SuffixProposer:
    """Drafts from a request's own text and from the outputs of all so far; needs no model and no KV cache.

    Args:
        limits: limits of one draft.
        max_cached_requests: outputs to keep; with 0 each request searches its own text alone.
    """

    lookahead = 0
    reads_last_tokens = True
    catches_up = False

    def __init__(self, limits: SuffixLimits, max_cached_requests: int) -> None:
        self._limits = limits
        self._most = max_cached_requests
        self._outputs: dict[int, np.ndarray] = {}

    def propose(self, step: VerifiedStep) -> Drafts:
        """Return draft tokens for the requests that can use them, and keep what every request emitted."""
        drafts = []
        for number, start, sequence, wanted in zip(
            step.numbers, step.prompt_lens, step.sequences, step.num_drafts, strict=True
        ):
            if self._most and len(sequence) > start:
                self._keep(number, sequence[start:])
            drafts.append(self._draft(sequence, wanted) if wanted else [])
        return Drafts(drafts)

    def _keep(self, number: int, output: np.ndarray) -> None:
        """Keep an output in place of the oldest one if there are too many."""
        self._outputs[number] = np.append(output, _END)
        if len(self._outputs) > self._most:
            oldest = next(other for other in self._outputs if other != number)
            del self._outputs[oldest]

    def _draft(self, sequence: np.ndarray, num_drafts: int) -> list[int]:
        outputs = np.concatenate([*self._outputs.values(), np.array([_END])])
        own, any_output = (
            most_frequent_continuation(texts, sequence, num_drafts, self._limits)
            for texts in (np.append(sequence, _END), outputs)
        )
        return own[0] if own[1] >= any_output[1] else any_output[0]

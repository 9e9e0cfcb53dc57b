"""A regular expression as `GenerationRequest.grammar`, matched by xgrammar."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache

import torch
import xgrammar


class RegexGrammar:
    """Tokens that continue a match of a regular expression. A state is the output so far, so that nothing is undone.

    Args:
        pattern: the expression that the whole output must match.
        vocabulary: the text of each token.
        end: id of the end-of-sequence token.
    """

    def __init__(self, pattern: str, vocabulary: Sequence[str], end: int) -> None:
        self._given = (pattern, tuple(vocabulary), end)
        self._end = end

    def start(self) -> tuple[int, ...]:
        """Return the empty output."""
        return ()

    def allowed(self, state: tuple[int, ...]) -> Collection[int]:
        """Return the tokens after `state`; the end of the sequence is followed by itself alone."""
        return (self._end,) if self._end in state else _following(*self._given, state)

    def advance(self, state: tuple[int, ...], token_id: int) -> tuple[int, ...]:
        """Return the output with one token more."""
        return (*state, token_id)


@lru_cache(maxsize=64)
def _compiled(pattern: str, vocabulary: tuple[str, ...], end: int) -> xgrammar.CompiledGrammar:
    tokens = xgrammar.TokenizerInfo(list(vocabulary), stop_token_ids=[end])
    return xgrammar.GrammarCompiler(tokens).compile_regex(pattern)


@lru_cache(maxsize=4096)
def _following(pattern: str, vocabulary: tuple[str, ...], end: int, state: tuple[int, ...]) -> frozenset[int]:
    matcher = xgrammar.GrammarMatcher(_compiled(pattern, vocabulary, end))
    for token_id in state:
        matcher.accept_token(token_id)
    bits = xgrammar.allocate_token_bitmask(1, len(vocabulary))
    bits.fill_(-1)
    matcher.fill_next_token_bitmask(bits)
    words = bits[0].to(torch.int64)
    return frozenset(token for token in range(len(vocabulary)) if int(words[token // 32]) >> (token % 32) & 1)

"""Grammars as automata over token ids: what a request's structured output may contain, without a grammar library.

A library's matcher fits behind `TokenGrammar` with three methods: its initial state, the state after a token, and the
tokens that a state allows. States are values, so that drafts are followed without changing the request's own state.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class TokenGrammar(Protocol):
    """An automaton over token ids. It must be picklable where an engine runs in a process of its own."""

    def start(self) -> Hashable:
        """Return the state before the first token of the output."""
        ...

    def allowed(self, state: Any) -> Collection[int]:
        """Return the tokens that may come next in `state`, at least one."""
        ...

    def advance(self, state: Any, token_id: int) -> Hashable:
        """Return the state after `token_id`, which `state` allows."""
        ...


@dataclass(frozen=True, slots=True)
class TransitionTable:
    """A grammar as a table.

    Args:
        transitions: next state of each allowed token, by state; state 0 is the first.
    """

    transitions: tuple[Mapping[int, int], ...]

    def start(self) -> int:
        """Return the first state."""
        return 0

    def allowed(self, state: int) -> Collection[int]:
        """Return the tokens of the row of `state`."""
        return self.transitions[state].keys()

    def advance(self, state: int, token_id: int) -> int:
        """Return the entry of `token_id` in the row of `state`; the first state for a token that it does not allow.

        So an engine that emits such a token goes on, and its output shows the token.
        """
        return self.transitions[state].get(token_id, 0)


def state_after(grammar: TokenGrammar, token_ids: Sequence[int]) -> Hashable | None:
    """Return the state of `grammar` after `token_ids`, from its first state; None where a token is not allowed."""
    state = grammar.start()
    for token_id in token_ids:
        if token_id not in grammar.allowed(state):
            return None
        state = grammar.advance(state, token_id)
    return state

"""Grammars of requests as tables."""

from __future__ import annotations

from verispec.engines.protocol.grammar import TransitionTable, state_after

TABLE = TransitionTable(({1: 1}, {2: 0, 3: 1}))


def test_a_table_follows_the_tokens_that_it_allows() -> None:
    assert [state_after(TABLE, tokens) for tokens in ((), (1,), (1, 3), (1, 2))] == [0, 1, 1, 0]


def test_a_forbidden_token_leads_to_the_first_state_and_is_no_output() -> None:
    assert TABLE.advance(1, 7) == 0
    assert state_after(TABLE, (1, 7)) is None

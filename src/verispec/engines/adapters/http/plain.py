"""Servers of an unknown kind: how their answers name tokens, found out by one request for one token.

Some report token ids when asked to. Others write the tokens of log-probabilities as text, and the checkpoint's
tokenizer turns an unambiguous text into its id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from verispec.engines.adapters.http.wire import Dialect, Json

ASKED: tuple[Json, ...] = ({"return_token_ids": True}, {"logprobs": 1})
"""Fields that make servers report tokens, the better one first."""


def reporting(dialect: Dialect, ask: Callable[[Json], Json]) -> Dialect:
    """Return the dialect with the field that makes the server report the tokens of an answer; as it is without one.

    Args:
        dialect: parameters of the server.
        ask: function from further fields of a request to the answer, which is empty if the server refuses them.
    """
    for fields in ASKED:
        for choice in ask(fields).get("choices") or ():
            told = (choice.get("logprobs") or {}) if isinstance(choice, dict) else {}
            if isinstance(choice, dict) and (choice.get("token_ids") or told.get("tokens") or told.get("content")):
                return replace(dialect, always={**dialect.always, **fields})
    return dialect


def names_of(tokenizer: Any) -> dict[str, int]:
    """Return ids by the text of a token, decoded or as the vocabulary writes it; only names that one token has."""
    found: dict[str, set[int]] = {}
    for name, token in tokenizer.get_vocab().items():
        for text in {name, tokenizer.decode([token])}:
            found.setdefault(text, set()).add(token)
    return {text: next(iter(tokens)) for text, tokens in found.items() if len(tokens) == 1 and "\ufffd" not in text}

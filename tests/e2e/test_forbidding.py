"""The words for parameters that forbid a token."""

from __future__ import annotations

from typing import Any

import pytest

from verispec.cases.request_parameters import MASKS, forbidding
from verispec.engines.protocol.generation import GenerationRequest

OUTPUT, STOPS = (3, 4), (0, 7)


def request(**parameters: Any) -> GenerationRequest:
    return GenerationRequest((1, 2), stop_token_ids=(7,), **parameters)


@pytest.mark.parametrize(
    ("parameters", "token", "words"),
    [
        ({"allowed_token_ids": (4, 5)}, 3, "allowed_token_ids"),
        ({"bad_words": ((3, 4, 6), (4, 5))}, 6, "bad_words"),
        ({"min_tokens": 3}, 7, "min_tokens of 3 (a token of stop_token_ids)"),
        ({"min_tokens": 3}, 0, "min_tokens of 3 (the end of sequence)"),
        ({"min_tokens": 2}, 7, ""),
        ({"min_tokens": 3, "bad_words": ((7,),)}, 7, "bad_words and min_tokens of 3 (a token of stop_token_ids)"),
    ],
)
def test_each_parameter_has_its_name(parameters: dict[str, Any], token: int, words: str) -> None:
    assert forbidding(request(**parameters), token, 9, OUTPUT, STOPS) == words


def test_every_mask_has_its_default() -> None:
    plain = GenerationRequest((1, 2))
    assert {name: getattr(plain, name) for name in MASKS} == MASKS

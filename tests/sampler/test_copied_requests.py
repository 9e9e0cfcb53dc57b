"""Copies of requests that engines get."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from verispec.engines.protocol.generation import GenerationRequest
from verispec.engines.protocol.grammar import TransitionTable
from verispec.engines.protocol.sampling import RequestContext
from verispec.judge._copied_requests import copied_context, copied_request


def test_what_an_engine_does_to_a_copied_request_changes_the_copy_alone() -> None:
    prompt: Any = [5, 2]  # a list instead of a tuple, as a careless caller may give
    request = GenerationRequest(prompt, bad_words=((1, 2),), logit_bias={3: 1.0}, grammar=TransitionTable(({1: 0},)))
    context = RequestContext(request, [4], (6,), torch.ones(1, 8, dtype=torch.bool))
    before = repr(context)
    given: Any = copied_context(context)
    assert repr(given) == before
    assert given.params == request
    given.params.prompt_token_ids.append(7)
    given.params.logit_bias[4] = 2.0
    given.params.grammar.transitions[0].clear()
    object.__setattr__(given.params, "max_tokens", 1)
    given.output_token_ids.append(1)
    given.allowed_rows.zero_()
    assert repr(context) == before


def test_a_copy_of_plain_values_is_equal_and_another_object() -> None:
    request = GenerationRequest((5, 2), temperature=0.5, seed=3, stop_token_ids=(1,), logit_bias={})
    given = copied_request(request)
    assert given == request
    assert given is not request
    assert replace(given, seed=4).seed == 4

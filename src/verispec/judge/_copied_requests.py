"""Copies of requests for an engine, as deep as `copy.deepcopy` makes them and much faster.

A test of a distribution has thousands of requests, whose fields hardly ever hold anything that can change.
"""

from __future__ import annotations

import copy
from dataclasses import fields
from functools import cache
from itertools import chain

from verispec.engines.protocol.generation import GenerationRequest
from verispec.engines.protocol.sampling import RequestContext

_PLAIN = frozenset({int, float, bool, str, type(None)})


def copied_request(request: GenerationRequest) -> GenerationRequest:
    """Return a copy that shares nothing which an engine can change."""
    made = object.__new__(GenerationRequest)
    for name in _field_names():
        value = getattr(request, name)
        object.__setattr__(made, name, value if _is_plain(value) else copy.deepcopy(value))
    return made


def copied_context(context: RequestContext) -> RequestContext:
    """Return a copy of a request of a step; see `copied_request`."""
    rows = context.allowed_rows
    return RequestContext(
        copied_request(context.params),
        copy.copy(context.output_token_ids),
        copy.copy(context.stop_token_ids),
        None if rows is None else rows.clone(),
    )


@cache
def _field_names() -> tuple[str, ...]:
    return tuple(field.name for field in fields(GenerationRequest))


def _is_plain(value: object) -> bool:
    """Return True for a number, a text, None, and tuples of them: nothing inside can change."""
    if type(value) is not tuple:
        return type(value) in _PLAIN
    kinds = set(map(type, value))
    if kinds == {tuple} and _PLAIN.issuperset(map(type, chain.from_iterable(value))):  # hundreds of bad words
        return True
    return kinds <= _PLAIN or all(map(_is_plain, value))

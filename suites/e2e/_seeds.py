"""A request with a seed again and again: does its seed decide its text at all?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from verispec.engines.protocol.generation import GenerationRequest, Generator
from verispec.judge import Failure, Kind, Mismatch

CALLS = 13
"""Calls of one request alone.

An engine may round in another way at each call, as with a cached prompt or with atomic sums. A draw that lies at its
limit then has either of two outcomes, so that 13 texts in 13 calls take four such draws or more. Draws that come 0.05
times in a text of 24 tokens do it with a chance of 4e-10. A lost seed gives 13 texts nearly always.
"""
LENGTH = 24
"""Tokens of a text at least, so that no two draws of it are equal by chance."""
MOST = 3
"""Requests that are called again."""


def require_seeds(generator: Generator, requests: Iterable[GenerationRequest]) -> None:
    """Check that the first `MOST` requests, which differ alone and in a batch, do not differ in every call alone.

    Rounding is no reason for that.

    Args:
        generator: the engine's.
        requests: requests with a seed and a temperature.

    Raises:
        Mismatch: no two of `CALLS` calls of one of them have one text.
    """
    for request in list(requests)[:MOST]:
        longer = replace(request, max_tokens=max(request.max_tokens, LENGTH))
        texts = [generator.generate([longer])[0].token_ids for _ in range(CALLS)]
        if len(set(texts)) == CALLS:
            message = (
                f"no two of {CALLS} calls of one request alone, with a seed of {request.seed}, have the same text: "
                f"{list(texts[0][:4])} and {list(texts[1][:4])} begin two of them"
            )
            raise Mismatch(Failure(Kind.RELATION, message, wrong=CALLS, total=CALLS))

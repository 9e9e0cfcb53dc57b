"""Checks of several texts of a batch, of which a failure says where the first wrong token of each lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from verispec.engines.protocol.generation import GenerationRequest, GenerationResult
from verispec.judge import Failure, Mismatch
from verispec.run.record import LOCATED
from verispec.suites.e2e._again import Again
from verispec.suites.e2e._where import (
    PLAIN,
    TOKENS,
    MemoryLayout,
    TokenPlace,
    chosen,
    separations,
    separations_of_requests,
    tokens_of,
)

Check = Callable[[int, GenerationResult], None]
"""Function of a request's number and its result that raises `Mismatch` if the text is wrong, with the "position" of its
first wrong token in the details."""


def check_texts(
    asked: Sequence[GenerationRequest],
    results: Sequence[GenerationResult],
    check: Check,
    layout: MemoryLayout = PLAIN,
    again: Again | None = None,
    what: str = "the first wrong tokens of {} texts",
) -> None:
    """Check each of several texts.

    Args:
        asked: requests of one call.
        results: one per request.
        check: check of one text.
        layout: memory of the engine.
        again: the engine, where wrong requests may run again alone; numbers are those of `asked`.
        what: name of the wrong tokens, with {} for the number of texts.

    Raises:
        Mismatch: failure of the first wrong text. The message has the feature that separates the first wrong token of
            each text from right ones, and the results of wrong requests alone.
    """
    failures = {n: failure for n, result in enumerate(results) if (failure := _failure(check, n, result)) is not None}
    if not failures:
        return
    told = where = _where_wrong(asked, results, failures, layout, what)
    if again is not None and layout.batch > 1:
        share = len(failures) / (len(results) + 1)
        told += again.told(list(failures), share, lambda n, result: (1, 0) if _failure(check, n, result) else (0, 1))
    first = next(iter(failures.values()))
    details = first.details | ({LOCATED: True} if where else {})
    raise Mismatch(replace(first, message=f"{first.message}{told}", details=details))


def _failure(check: Check, number: int, result: GenerationResult) -> Failure | None:
    try:
        check(number, result)
    except Mismatch as mismatch:
        return mismatch.failure
    return None


def _where_wrong(
    asked: Sequence[GenerationRequest],
    results: Sequence[GenerationResult],
    failures: dict[int, Failure],
    layout: MemoryLayout,
    what: str,
) -> str:
    wrong: list[TokenPlace] = []
    right: list[TokenPlace] = []
    for number, (request, result) in enumerate(zip(asked, results, strict=True)):
        tokens = tokens_of(number, request.prompt_token_ids, result, layout)
        end = int(failures[number].details.get("position", 0)) if number in failures else len(tokens)
        right += tokens[:end]
        wrong += tokens[end : end + 1]
    return chosen(separations(wrong, right, what, TOKENS) + separations_of_requests(wrong, right))

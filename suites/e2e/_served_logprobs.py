"""Log-probabilities of a server's answers against the rows of its model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import GenerationRequest, TokenLogprobs
from verispec.engines.protocol.serving import Choice
from verispec.judge import Mismatch
from verispec.suites.e2e._served import Row, ServedModel, tokens_of
from verispec.suites.e2e._setups import require


def check_answer(served: ServedModel, request: GenerationRequest, choice: Choice, what: str) -> None:
    """Check that each token of an answer has its log-probability, and as many most likely tokens as asked for.

    Raises:
        Mismatch: one is missing or wrong.
        UnsupportedCall: all are those after the temperature, and the server's documentation is unknown.
    """
    tokens = tokens_of(choice)
    count = len(choice.logprobs)
    require(count == len(tokens), f"{what} has {count} log-probabilities of {len(tokens)} tokens")
    rows, slack = served.rows(request.prompt_token_ids, tokens)
    mode = served.server.logprobs_mode
    warm = not request.greedy and request.temperature != 1
    if mode == "processed" and warm:
        rows, slack = tempered(served, rows, request), slack / request.temperature
    try:
        _check(rows, tokens, choice.logprobs, request.logprobs or 0, slack, what)
    except Mismatch:
        if mode or not warm or not served.exact:
            raise
        _check(tempered(served, rows, request), tokens, choice.logprobs, request.logprobs or 0, slack * 2, what)
        told = "log-probabilities are those after the temperature; if its documentation says so, add"
        raise UnsupportedCall(f"{told} logprobs_mode=processed") from None


def check_prompt(
    served: ServedModel, request: GenerationRequest, entries: Sequence[TokenLogprobs | None], what: str
) -> None:
    """Check that each token of a prompt but its first has its log-probability.

    Raises:
        Mismatch: one is missing or wrong.
    """
    first, *tokens = request.prompt_token_ids
    count = len(tokens) + 1
    require(len(entries) == count, f"{what} has {len(entries)} entries of {count} prompt tokens")
    require(entries[0] is None, f"{what}: the first token of a prompt follows nothing")
    told = [entry for entry in entries[1:] if entry is not None]
    require(len(told) == len(tokens), f"{what} lacks log-probabilities of {len(tokens) - len(told)} prompt tokens")
    rows, slack = served.rows((first,), tuple(tokens))
    _check(rows, tokens, told, request.prompt_logprobs or 0, slack, f"{what}, prompt")


def tempered(served: ServedModel, rows: Sequence[Row], request: GenerationRequest) -> list[Row]:
    """Return whole rows after a request's temperature. Raises UnsupportedCall if only parts of rows are known."""
    if not served.exact:
        raise UnsupportedCall("only a checkpoint gives whole distributions; add checkpoint=FOLDER")
    warm = [row.logprobs / request.temperature for row in rows]
    sums = [float(values.max() + np.log(np.exp(values - values.max()).sum())) for values in warm]
    return [replace(row, logprobs=values - total) for row, values, total in zip(rows, warm, sums, strict=True)]


def _check(
    rows: Sequence[Row],
    tokens: Sequence[int],
    entries: Sequence[TokenLogprobs],
    wanted: int,
    slack: float,
    what: str,
) -> None:
    for place, (row, token, entry) in enumerate(zip(rows, tokens, entries, strict=True)):
        where = f"{what}, token {place}"
        _require_logprob(row, token, entry.sampled, slack, where)
        ids = [other for other, _ in entry.top]
        if min(ids, default=0) < 0:
            raise UnsupportedCall("the server reports most likely tokens without their ids")
        require(len(set(ids)) == len(ids) == wanted, f"{where} has the most likely tokens {ids}, expected {wanted}")
        for rank, (other, value) in enumerate(entry.top):
            _require_logprob(row, other, value, slack, where)
            if rank < len(row.logprobs):
                least = float(row.logprobs[rank])
                require(
                    value >= least - slack,
                    f"{where}: {other} at {value:.5f} is number {rank + 1} of the most likely, expected {least:.5f}",
                )


def _require_logprob(row: Row, token: int, value: float, slack: float, where: str) -> None:
    expected = row.at_most(token)
    good = abs(value - expected) <= slack if row.knows(token) else value <= expected + slack
    require(good, f"{where}: log-probability {value:.5f} of {token}, expected {expected:.5f}")

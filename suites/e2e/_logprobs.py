"""Log-probabilities of generated texts against the rows of a float64 model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from verispec.cases.request_parameters import distribution, possible, processed, slack_after
from verispec.engines.protocol.generation import GenerationRequest, GenerationResult, TokenLogprobs
from verispec.judge import Mismatch
from verispec.suites.e2e._parameters import stops_of
from verispec.suites.e2e._reference_model import Array, ReferenceModel
from verispec.suites.e2e._setups import require, require_accepted_drafts

ARITHMETIC = 1e-5
"""Error of a float32 log-softmax over 2,048 tokens."""


def check_batch(
    results: Sequence[GenerationResult],
    asked: Sequence[GenerationRequest],
    mode: str,
    model_of: Callable[[GenerationRequest], ReferenceModel],
) -> None:
    """Check the log-probabilities of a batch.

    Args:
        results: results of the batch.
        asked: its requests.
        mode: one of `LOGPROBS_MODES`.
        model_of: function from a request to the float64 model that its rows come from.

    Raises:
        Inconclusive: drafts were verified and none was accepted.
        Mismatch: a token has no entry, or an entry has a wrong value.
    """
    require_accepted_drafts(results)
    for n, (request, result) in enumerate(zip(asked, results, strict=True)):
        what, entries, wanted = (
            f"request {n}",
            result.logprobs,
            0 if request.logprobs is None else len(result.token_ids),
        )
        require(len(entries) == wanted, f"{what} has {len(entries)} log-probabilities, expected {wanted}")
        if wanted:
            check_entries(model_of(request), request, result.token_ids, entries, mode, what)


def check_entries(
    model: ReferenceModel,
    request: GenerationRequest,
    tokens: Sequence[int],
    entries: Sequence[TokenLogprobs],
    mode: str,
    what: str,
) -> None:
    """Check the value of each token and the most likely tokens of its row."""
    rows = model.logits(request.prompt_token_ids, tuple(tokens))
    slack = model.rounding(request.prompt_token_ids, tuple(tokens))
    for i, (logits, token, entry) in enumerate(zip(rows, tokens, entries, strict=True)):
        row, off = logits, slack
        if mode == "processed":
            row, off = processed(logits, request, tokens[:i], stops_of(request)), slack_after(slack, request)
        if mode == "processed" and not request.greedy:
            exact = distribution(row, request)
            if (possible(row, request, off) != (exact > 0)).any():
                continue  # A token at the edge of a limit may be in or out.
            with np.errstate(divide="ignore"):
                row = np.log(exact)
            off /= request.temperature
        bound = 2 * off + ARITHMETIC
        try:
            check_row(row, token, entry, request.logprobs or 0, bound, f"{what}, token {i}")
        except Mismatch as mismatch:
            others = {"the raw logits": logits, **_shaped(logits, request, tokens[:i])}
            if other := _confused(_log_softmax(row)[token], others, token, entry.sampled, bound):
                message = f"{mismatch.failure.message}; it is that of {other}, and the mode is {mode}"
                raise Mismatch(replace(mismatch.failure, message=message)) from mismatch
            raise


def _shaped(logits: Array, request: GenerationRequest, before: Sequence[int]) -> dict[str, Array]:
    """Return rows that an engine may take the log-probability from by mistake, each with its name."""
    after = processed(logits, request, before, stops_of(request))
    rows = {"the logits after the processors": after}
    if not request.greedy:
        with np.errstate(divide="ignore"):
            rows["the distribution that was sampled from"] = np.log(distribution(after, request))
        rows["the logits over the temperature"] = logits / request.temperature
    return rows


def _confused(expected: float, others: Mapping[str, Array], token: int, got: float, bound: float) -> str:
    """Return the name of the row whose log-probability of `token` is `got`; empty for none, and if `got` is right."""
    if abs(got - expected) <= bound:
        return ""
    found = (name for name, row in others.items() if abs(got - _log_softmax(row)[token]) <= bound)
    return next(found, "a token that is certain" if abs(got) <= bound else "")


def _log_softmax(row: Array) -> Array:
    best = row.max()
    exact: Array = row - best - np.log(np.exp(row - best).sum())
    return exact


def check_prompt_entries(
    model: ReferenceModel, request: GenerationRequest, result: GenerationResult, what: str
) -> None:
    """Check the log-probabilities of a prompt: one entry per token that asks for them, and None for the first."""
    first, *following = request.prompt_token_ids
    entries, top = result.prompt_logprobs, request.prompt_logprobs
    wanted = 0 if top is None else 1 + len(following)
    require(len(entries) == wanted, f"{what} has {len(entries)} log-probabilities of its prompt, expected {wanted}")
    if top is None:
        return
    require(entries[0] is None, f"{what}: the first token of its prompt has a log-probability")
    if following:
        own = [entry for entry in entries[1:] if entry is not None]
        missing = len(following) - len(own)
        require(not missing, f"{what}: {missing} tokens of its prompt have no log-probability")
        read = GenerationRequest((first,), logprobs=top)
        check_entries(model, read, following, own, "raw", f"the prompt of {what}")


def check_row(row: Array, token: int, entry: TokenLogprobs, top: int, bound: float, what: str) -> None:
    """Check one entry against the log-softmax of `row`; every value may be off by `bound`."""
    exact = _log_softmax(row)
    off = abs(entry.sampled - exact[token])
    require(bool(off <= bound), f"{what}: log-probability {entry.sampled:.5f} of {token}, expected {exact[token]:.5f}")
    ids, values = [id_ for id_, _ in entry.top], [value for _, value in entry.top]
    require(len(set(ids)) == len(ids) == top, f"{what}: {len(ids)} most likely tokens {ids}, expected {top}")
    require(values == sorted(values, reverse=True), f"{what}: most likely tokens do not fall: {values}")
    if not top:
        return
    least = float(np.sort(exact)[-top])
    for id_, value in entry.top:
        same = (np.isneginf(exact[id_]) and value < -1e4) or abs(value - exact[id_]) <= bound
        require(bool(same), f"{what}: log-probability {value:.5f} of {id_}, expected {exact[id_]:.5f}")
        among = exact[id_] >= least - 2 * bound or np.isneginf(least)
        require(bool(among), f"{what}: {id_} at {exact[id_]:.5f} is not among the {top} most likely")

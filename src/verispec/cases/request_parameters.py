"""Apply a request's parameters to one row of logits in float64: the executable form of their clauses.

The order is the one that `GenerationRequest` documents: grammar, allowed ids, bad words, min tokens, logit bias,
repetition penalty, presence and frequency penalties, temperature, min-p, top-k, top-p.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from verispec.cases.distribution import limited
from verispec.engines.protocol.grammar import state_after

if TYPE_CHECKING:
    from verispec.engines.protocol.generation import GenerationRequest

Array = np.ndarray[Any, Any]
_NEVER = -np.inf


def processed(
    logits: Array,
    request: GenerationRequest,
    output: Sequence[int],
    stop_token_ids: Collection[int] = (),
    repeats: Mapping[int, int] | None = None,
) -> Array:
    """Return the row [V] in float64 after every parameter that comes before temperature.

    An output that its grammar does not allow has no next tokens; the grammar then masks nothing.

    Args:
        logits: [V], the model's own.
        request: request whose parameters apply.
        output: tokens emitted before this row's token; the drafts before it count as emitted.
        stop_token_ids: tokens that `min_tokens` forbids.
        repeats: number of times that the repetition penalty applies to each token, where that is wrong; None applies
            it once to each token of prompt and output.
    """
    row = np.array(logits, dtype=np.float64)
    if request.grammar is not None:
        state = state_after(request.grammar, output)
        if state is not None:
            row[_others(request.grammar.allowed(state), len(row))] = _NEVER
    if request.allowed_token_ids:
        row[_others(request.allowed_token_ids, len(row))] = _NEVER
    last, text = output[-1] if output else None, tuple(output)
    for word in request.bad_words:
        if len(word) == 1 or (word[-2] == last and text[1 - len(word) :] == tuple(word[:-1])):
            row[word[-1]] = _NEVER
    if len(output) < request.min_tokens:
        row[list(stop_token_ids)] = _NEVER
    for token, bias in request.logit_bias.items():
        row[token] += bias
    if request.repetition_penalty != 1:
        seen = dict.fromkeys((*request.prompt_token_ids, *output), 1) if repeats is None else repeats
        for token, times in seen.items():
            penalty = request.repetition_penalty**times
            row[token] *= 1 / penalty if row[token] > 0 else penalty
    if request.presence_penalty or request.frequency_penalty:
        for token, count in Counter(output).items():
            row[token] -= request.presence_penalty + request.frequency_penalty * count
    return row


def _others(tokens: Iterable[int], vocab: int) -> Array:
    """Return a mask [V] of all tokens but these. `numpy.isin` takes several times as long for few tokens."""
    others = np.ones(vocab, dtype=np.bool_)
    others[[token for token in tokens if 0 <= token < vocab]] = False
    return others


def forbidding(
    request: GenerationRequest, token: int, vocab: int, output: Sequence[int], stop_token_ids: Collection[int] = ()
) -> str:
    """Return the names of the parameters that forbid a token, joined, and which kind of end `min_tokens` forbids.

    Args:
        request: request whose parameters apply.
        token: the forbidden token.
        vocab: V.
        output: tokens emitted before it.
        stop_token_ids: tokens that `min_tokens` forbids.
    """
    names = []
    for name in MASKS:
        alone = replace(request, **{other: nothing for other, nothing in MASKS.items() if other != name})
        if processed(np.zeros(vocab), alone, output, stop_token_ids)[token] == _NEVER:
            names.append(name)
    if "min_tokens" in names:
        end = "a token of stop_token_ids" if token in request.stop_token_ids else "the end of sequence"
        names[-1] += f" of {request.min_tokens} ({end})"
    return " and ".join(names)


MASKS: Mapping[str, Any] = {
    "grammar": None,
    "allowed_token_ids": (),
    "bad_words": (),
    "min_tokens": 0,
}
"""Parameters that forbid tokens, and their values that forbid none."""


def slack_after(slack: float, request: GenerationRequest) -> float:
    """Return the maximum error of a processed logit.

    Args:
        slack: maximum error of the model's own logits.
        request: request whose repetition penalty scales the error.
    """
    return slack * max(request.repetition_penalty, 1 / request.repetition_penalty, 1.0)


def distribution(row: Array, request: GenerationRequest) -> Array:
    """Return the distribution of a sampled token; see `limited`.

    Args:
        row: [..., V] float64 logits of `processed`.
        request: request whose temperature and limits apply.

    Returns:
        [..., V] float64.
    """
    return limited(row, request.temperature, request.top_k, request.top_p, request.min_p)


def possible(row: Array, request: GenerationRequest, slack: float = 0.0) -> Array:
    """Return a mask of the tokens that may be sampled from a row with errors.

    A token is excluded only if it falls outside a limit for every row that close.

    Args:
        row: [V] float64 logits of `processed`.
        request: request whose temperature and limits apply.
        slack: maximum error of a logit.

    Returns:
        [V] bool.
    """
    scaled, margin = row / request.temperature, 2 * slack / request.temperature
    kept = _within(scaled, request, margin)
    if request.top_p < 1:
        weights = np.where(kept, np.exp(scaled - scaled.max()), 0.0)
        order = np.argsort(-weights, kind="stable")
        sure = np.searchsorted(-scaled[order], -(scaled + margin), side="left")
        before = np.concatenate(([0.0], np.cumsum(weights[order])))[sure]
        kept &= _begins_nucleus(before, weights, request.top_p, margin)
    return kept


def is_possible(row: Array, request: GenerationRequest, token: int, slack: float = 0.0) -> bool:
    """Return `possible` of one token, for which no row is sorted."""
    scaled, margin = row / request.temperature, 2 * slack / request.temperature
    kept = _within(scaled, request, margin)
    if request.top_p == 1 or not kept[token]:
        return bool(kept[token])
    weights = np.where(kept, np.exp(scaled - scaled.max()), 0.0)
    before = weights[scaled > scaled[token] + margin].sum()
    return bool(_begins_nucleus(before, weights, request.top_p, margin))


def _within(scaled: Array, request: GenerationRequest, margin: float) -> Array:
    """Return a mask of the tokens that min-p and top-k may keep, [V] bool."""
    kept: Array = np.isfinite(scaled)
    if request.min_p:
        kept &= scaled >= scaled.max() + np.log(request.min_p) - margin
    if 0 < request.top_k < len(scaled):
        kept &= scaled >= np.partition(scaled, -request.top_k)[-request.top_k] - margin
    return kept


def _begins_nucleus(before: Any, weights: Array, top_p: float, margin: float) -> Any:
    """Return True where the mass `before` a token may be below top-p, for weights [V] of the kept tokens."""
    return before * np.exp(-margin) < top_p * weights.sum() * np.exp(margin) * (1 + _MASS)


_MASS = 1e-5
"""Relative error of a float32 sum of up to 2^18 probabilities, which top-p compares with its limit."""

"""Short sequences as outcomes of a law: their names, and their laws under mistakes with the request's parameters."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator

import numpy as np

from verispec.cases.orders import Steps, in_order, law_in_order, mistaken, steps_of
from verispec.engines.protocol.generation import GenerationRequest
from verispec.suites.e2e._reference_model import Array, ReferenceModel
from verispec.suites.e2e._tiny import EOS, VOCAB

JUDGED = 3
"""Tokens of a sequence."""

RowLaw = Callable[[Array, tuple[int, ...]], Array]
"""Distribution [V] of the token behind the row [V] of logits and the output before it."""


def stops_of(request: GenerationRequest) -> frozenset[int]:
    """Return the tokens that end a request; both targets have the same end-of-sequence token.

    Engines differ on whether `min_tokens` forbids an end-of-sequence token that is ignored, so no request has both.
    """
    return frozenset(request.stop_token_ids) | (frozenset() if request.ignore_eos else {EOS})


def sequence_names(request: GenerationRequest | None = None, tokens: int = JUDGED) -> list[str]:
    """Return the name of each start of `tokens` tokens over the small vocabulary, in the order of its outcomes.

    A text that ends at a stop token of the request has no more tokens in its name. It tells if it is too short.
    """
    return [_name(tuple(map(int, ids)), request) for ids in np.ndindex(*(VOCAB,) * tokens)]


def _name(ids: tuple[int, ...], request: GenerationRequest | None) -> str:
    stops = stops_of(request) if request else frozenset()
    end = next((place for place, token in enumerate(ids) if token in stops), None)
    if request is None or end is None:
        return f"the text {list(ids)}"
    early = f" after {end} of at least {request.min_tokens} tokens" if end < request.min_tokens else ""
    return f"the text {list(ids[: end + 1])}, which ends with the stop token {ids[end]}{early},"


def law_of_sequences(model: ReferenceModel, request: GenerationRequest, law: RowLaw) -> Array:
    """Return the probability of every start of three tokens, [V, V, V]; tokens after a stop token count as 0."""
    exact, stops = np.zeros((VOCAB,) * JUDGED), stops_of(request)
    for a, b in itertools.product(range(VOCAB), repeat=2):
        rows = model.logits(request.prompt_token_ids, (a, b, 0))
        first, second, third = (law(row, (a, b)[:place]) for place, row in enumerate(rows))
        if a in stops or not first[a]:
            exact[a, EOS, EOS] = first[a]
        elif b in stops or not second[b]:
            exact[a, b, EOS] = first[a] * second[b]
        else:
            exact[a, b] = first[a] * second[b] * third
    return exact


def mistaken_sequences(model: ReferenceModel, request: GenerationRequest) -> dict[str, Array]:
    """Return the flat law of sequences by mistake, in words; a mistake that leaves a row no token has none."""
    found = {}
    with np.errstate(invalid="ignore", divide="ignore"):
        for words, law in _mistaken(request):
            found[words] = law_of_sequences(model, request, law).ravel()
    return {words: law for words, law in found.items() if np.isfinite(law).all()}


def _mistaken(request: GenerationRequest) -> Iterator[tuple[str, RowLaw]]:
    steps, stops = steps_of(request), stops_of(request)
    for words, order in mistaken(steps):
        yield words, _ordered(request, stops, order)
    if request.min_tokens and EOS in stops:
        yield "min_tokens did not forbid the model's end-of-sequence token", _ordered(request, stops - {EOS}, steps)
        yield "min_tokens forbade the model's end-of-sequence token alone", _ordered(request, {EOS}, steps)
    if any("penalt" in name for name in steps):
        yield "no token counted as output", _without_output(request, stops, steps)


def _without_output(request: GenerationRequest, stops: Collection[int], steps: Steps) -> RowLaw:
    """Return the law in which penalties see no output; bad words, grammar and min_tokens do."""
    late = tuple(name for name in steps if "penalt" in name)
    early, rest = steps[: steps.index(late[0])], steps[steps.index(late[-1]) + 1 :]

    def law(row: Array, output: tuple[int, ...]) -> Array:
        row = in_order(in_order(row, request, output, stops, early), request, (), stops, late)
        return law_in_order(row, request, output, stops, rest)

    return law


def _ordered(request: GenerationRequest, stops: Collection[int], order: Steps) -> RowLaw:
    return lambda row, output: law_in_order(row, request, output, stops, order)

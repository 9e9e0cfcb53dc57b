"""Ways to combine a request's parameters wrongly: one of them at another place of the order, or left out.

After a failure they tell which mistake gives what an engine emitted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from verispec.cases.distribution import limited
from verispec.cases.request_parameters import processed

if TYPE_CHECKING:
    from verispec.engines.protocol.generation import GenerationRequest

Array = np.ndarray[Any, Any]
Steps = tuple[str, ...]

OFF: dict[str, dict[str, Any]] = {
    "the grammar": {"grammar": None},
    "the allowed ids": {"allowed_token_ids": ()},
    "the bad words": {"bad_words": ()},
    "min_tokens": {"min_tokens": 0},
    "the logit bias": {"logit_bias": {}},
    "the repetition penalty": {"repetition_penalty": 1.0},
    "the presence penalty": {"presence_penalty": 0.0},
    "the frequency penalty": {"frequency_penalty": 0.0},
    "the temperature": {"temperature": 1.0},
    "min-p": {"min_p": 0.0},
    "top-k": {"top_k": 0},
    "top-p": {"top_p": 1.0},
}
"""Parameters in the order in which they apply, with the fields that turn each off."""
MASKS = ("the grammar", "the allowed ids", "the bad words", "min_tokens")
BOTH = "presence and frequency penalties"
"""Presence and frequency penalties of a request that has both: one step, which changes nothing in another order."""
ADDED = ("the logit bias", "the presence penalty", "the frequency penalty", BOTH)
"""Parameters that add a number to logits."""
LIMITS = ("min-p", "top-k", "top-p")
_PAIR = ("the presence penalty", "the frequency penalty")
_PROCESSORS = {name: fields for name, fields in OFF.items() if name not in ("the temperature", *LIMITS)}


def repetitions(request: GenerationRequest, output: Sequence[int]) -> dict[str, Mapping[int, int]]:
    """Return the number of times that a repetition penalty applies to each token, by the mistake in words."""
    prompt = request.prompt_token_ids
    return {
        "the repetition penalty applied once for each place of a token": Counter((*prompt, *output)),
        "the repetition penalty left the prompt out": dict.fromkeys(output, 1),
        "the repetition penalty of the first token left the prompt out": dict.fromkeys(
            (*prompt, *output) if output else (), 1
        ),
        "the repetition penalty left the output out": dict.fromkeys(prompt, 1),
    }


def one_sign(field: str, value: float) -> tuple[str, str]:
    """Return the penalties with the sign of `value`, and those with the other one, in words.

    A repetition penalty of 1 changes nothing, and a presence or frequency penalty of 0.
    """
    bound = int(field == "repetition_penalty")
    own, other = ("below", "above") if value < bound else ("above", "below")
    return f"a {field.replace('_', ' ')} {own} {bound}", f"one {other}"


def steps_of(request: GenerationRequest) -> Steps:
    """Return the parameters that a request has, in the order in which they apply.

    A greedy request has no temperature and no limits, which change no most likely token.
    """
    own = [name for name, fields in OFF.items() if any(getattr(request, field) != off for field, off in fields.items())]
    own = [name for name in own if name in _PROCESSORS or not request.greedy]
    if not {*_PAIR} <= {*own}:
        return tuple(own)
    return tuple(BOTH if name == _PAIR[0] else name for name in own if name != _PAIR[1])


def swapped(steps: Steps) -> Iterator[tuple[str, Steps]]:
    """Yield each order with two neighbours in turn that matters, after the words that say so."""
    for place, (first, second) in enumerate(pairwise(steps)):
        if not commute(first, second):
            yield f"{second} came before {first}", (*steps[:place], second, first, *steps[place + 2 :])


def mistaken(steps: Steps) -> Iterator[tuple[str, Steps]]:
    """Yield `steps` with one left out or at another place, each wrong order once, after the words that say so.

    An exchange of two neighbours has the words of `swapped`.
    """
    for place, name in enumerate(steps):
        for left in (*((each,) for each in _PAIR * (name == BOTH)), ()):
            lost = next((each for each in _PAIR if left and each not in left), name)
            verb = "were" if lost in (BOTH, "the allowed ids", "the bad words") else "was"
            yield f"{lost} {verb} missing", (*steps[:place], *left, *steps[place + 1 :])
    moved = list(swapped(steps))
    for place, name in enumerate(steps):
        others = (*steps[:place], *steps[place + 1 :])
        for to, beside in enumerate(steps):
            if to != place:
                words = f"{name} came {'before' if to < place else 'after'} {beside}"
                moved.append((words, (*others[:to], name, *others[to:])))
    found = {_what_matters(steps)}
    for words, order in moved:
        if (key := _what_matters(order)) not in found:
            found.add(key)
            yield words, order


def commute(first: str, second: str) -> bool:
    """Return True if two steps that follow each other give the same in either order."""
    pair = {first, second}
    if pair & {*LIMITS}:
        return pair in ({"min-p", "top-k"}, {"the temperature", "top-k"})
    scaled = {"the temperature", "the repetition penalty"}
    return bool(pair & {*MASKS}) or pair <= {*ADDED} or pair == scaled


def _what_matters(order: Steps) -> frozenset[tuple[str, str]]:
    """Return the pairs of steps, the earlier one first, whose order matters: they decide what an order gives."""
    return frozenset((a, b) for place, a in enumerate(order) for b in order[place + 1 :] if not commute(a, b))


def in_order(
    row: Array, request: GenerationRequest, output: Sequence[int], stops: Collection[int], steps: Steps
) -> Array:
    """Return the row [V] of logits after `steps` in their order; `processed` defines each of them.

    Args:
        row: [V] float64, the model's own.
        request: request whose parameters apply.
        output: tokens that count as emitted before this row's token.
        stops: tokens that `min_tokens` forbids.
        steps: parameters that apply, each once at most.
    """
    for name in steps:
        if name == "the temperature":
            row = row / request.temperature
        elif name in LIMITS:
            fields = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
            fields |= {field: getattr(request, field) for field in OFF[name]}
            row = np.where(limited(row, 1.0, **fields) > 0, row, -np.inf)  # type: ignore[arg-type]
        else:
            own = _PAIR if name == BOTH else (name,)
            off = {
                field: none for other, each in _PROCESSORS.items() if other not in own for field, none in each.items()
            }
            row = processed(row, replace(request, **off), output, stops)
    return row


def law_in_order(
    row: Array, request: GenerationRequest, output: Sequence[int], stops: Collection[int], steps: Steps
) -> Array:
    """Return the distribution [V] of a sampled token after `steps` in their order."""
    return limited(in_order(row, request, output, stops, steps), 1.0)

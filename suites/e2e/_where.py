"""Places of wrong drafts and tokens: the one plain feature that separates them from right ones, in words.

A feature is named only if all wrong places have it, and if so many of them would not have it by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import Any

from verispec.engines.protocol.generation import GenerationResult, LoadOptions, SpeculativeStep

CHANCE = 1e-3
"""Largest probability that as many places as are wrong, taken at random, all have a feature that is named."""
APART = 30
"""Least ratio of that probability for the second feature and for the one that is named."""
LEAST_WRONG, LEAST_RIGHT = 2, 3
"""Least number of wrong places, and of right ones without the feature."""
DEFAULTS = LoadOptions()


@dataclass(frozen=True)
class MemoryLayout:
    """The memory of an engine, as a case loads it.

    Attributes:
        block: positions of a KV block.
        chunk: most tokens of a step, so that longer prompts are read in chunks.
        batch: most requests of a step.
        has_forks: True if drafts are a tree, of which no step accepts all.
    """

    block: int = DEFAULTS.block_size
    chunk: int = DEFAULTS.max_num_batched_tokens
    batch: int = DEFAULTS.max_num_seqs
    has_forks: bool = False

    @classmethod
    def of(cls, options: dict[str, Any]) -> MemoryLayout:
        """Return the layout of some options of `LoadOptions`, by their names."""
        names = {"block": "block_size", "chunk": "max_num_batched_tokens", "batch": "max_num_seqs"}
        return cls(**{own: options[name] for own, name in names.items() if name in options})


PLAIN = MemoryLayout()


@dataclass(frozen=True)
class TokenPlace:
    """A draft or an emitted token, with the step that it belongs to.

    Attributes:
        request: number of its request in the batch.
        index: number in its step; a step emits `accepted` drafts and one token more.
        drafted: drafts that the step verified.
        accepted: drafts that it accepted.
        before: the step before it; None for the first one of a text.
        verified: earlier steps of the text that verified drafts.
        known: tokens known before the step, those of the prompt included.
        prompt: tokens of the prompt.
        preempted: True if the request was preempted at any time.
        layout: memory of the engine.
    """

    request: int
    index: int
    drafted: int
    accepted: int
    before: SpeculativeStep | None
    verified: int
    known: int
    prompt: int
    preempted: bool
    layout: MemoryLayout

    @property
    def step(self) -> tuple[int, int]:
        """The step, apart from all others of its batch."""
        return self.request, self.known


Feature = tuple[str, Callable[[TokenPlace], bool]]
"""Words to follow "are", and the places that they hold for."""


def _is_behind_rejected(place: TokenPlace) -> bool:
    return place.before is not None and place.before.accepted < place.before.drafted and not place.layout.has_forks


def _is_behind_accepted(place: TokenPlace) -> bool:
    return place.before is not None and place.before.accepted > 0


def _is_behind_bonus(place: TokenPlace) -> bool:
    return place.before is not None and 0 < place.before.drafted == place.before.accepted


def _is_behind_pause(place: TokenPlace) -> bool:
    return place.before is not None and place.before.drafted == 0 and place.verified > 0


def _crosses(place: TokenPlace) -> bool:
    first, last = place.known - 1, place.known - 1 + place.drafted
    return first // place.layout.block < last // place.layout.block


STEPS: Sequence[Feature] = (
    ("the first ones with drafts of their requests", lambda p: p.verified == 0),
    ("behind a rejected draft", _is_behind_rejected),
    ("behind steps that accepted drafts", _is_behind_accepted),
    ("behind steps that accepted all drafts", _is_behind_bonus),
    ("behind steps without drafts", _is_behind_pause),
    ("steps whose drafts reach the next KV block", _crosses),
)
"""Features of steps with drafts."""

DRAFTS: Sequence[Feature] = (
    ("the first ones of their steps", lambda p: p.index == 0),
    ("later ones of their steps", lambda p: p.index > 0),
)
"""Features of drafts."""

TOKENS: Sequence[Feature] = (
    ("the first ones of their texts", lambda p: p.before is None and p.index == 0),
    ("accepted drafts", lambda p: p.index < p.accepted),
    ("recovered tokens", lambda p: p.index == p.accepted < p.drafted and not p.layout.has_forks),
    ("bonus tokens", lambda p: p.index == p.accepted == p.drafted > 0),
    ("in steps without drafts", lambda p: p.drafted == 0),
    ("in steps with drafts", lambda p: p.drafted > 0),
    ("behind an accepted draft of their step", lambda p: p.index > 0),
    ("the first ones behind a rejected draft", lambda p: p.index == 0 and _is_behind_rejected(p)),
    ("the first ones behind steps that accepted drafts", lambda p: p.index == 0 and _is_behind_accepted(p)),
    ("the first ones behind a bonus token", lambda p: p.index == 0 and _is_behind_bonus(p)),
    ("in steps whose drafts reach the next KV block", _crosses),
)
"""Features of emitted tokens."""

REQUESTS: Sequence[Feature] = (
    ("preempted ones", lambda p: p.preempted),
    ("ones that waited for others to end", lambda p: p.request >= p.layout.batch),
    ("ones with prompts that are read in chunks", lambda p: p.prompt > p.layout.chunk),
)
"""Features of requests."""


def steps_of(request: int, prompt: Sequence[int], result: GenerationResult, layout: MemoryLayout) -> list[TokenPlace]:
    """Return the place of the first draft, and of the first token, of every step of a text."""
    found: list[TokenPlace] = []
    known, verified, before = len(prompt), 0, None
    for step in result.steps:
        preempted = result.preemptions > 0
        found.append(
            TokenPlace(request, 0, step.drafted, step.accepted, before, verified, known, len(prompt), preempted, layout)
        )
        known, verified, before = known + step.accepted + 1, verified + (step.drafted > 0), step
    return found


def tokens_of(request: int, prompt: Sequence[int], result: GenerationResult, layout: MemoryLayout) -> list[TokenPlace]:
    """Return the place of every token of a text; empty if the engine does not report all steps."""
    steps = steps_of(request, prompt, result, layout)
    every = [replace(place, index=index) for place in steps for index in range(place.accepted + 1)]
    return every[: len(result.token_ids)] if len(every) >= len(result.token_ids) else []


@dataclass(frozen=True)
class Separation:
    """A feature of all wrong places.

    Attributes:
        chance: probability that the wrong places all have it if they are any of all places.
        text: wrong and right places by the feature.
    """

    chance: float
    text: str


def separations(
    wrong: Sequence[TokenPlace], right: Sequence[TokenPlace], what: str, features: Sequence[Feature]
) -> list[Separation]:
    """Return the features that all wrong places and few right ones have.

    Args:
        wrong: wrong places.
        right: right places that would show a fault.
        what: name of the wrong places, with {} for their number.
        features: features of such places.
    """
    found = []
    for words, holds in features:
        others = sum(not holds(place) for place in right)
        same = len(right) - others
        if not all(map(holds, wrong)) or len(wrong) < max(LEAST_WRONG, same) or others < LEAST_RIGHT:
            continue
        chance = comb(len(wrong) + same, len(wrong)) / comb(len(wrong) + len(right), len(wrong))
        counted = f"{same} of these and {others} others" if same else f"{others} others"
        found.append(Separation(chance, f"{what.format(len(wrong))} are {words}; {counted} are right"))
    return found


def separations_of_requests(wrong: Sequence[TokenPlace], right: Sequence[TokenPlace]) -> list[Separation]:
    """Return the features that all requests with a wrong place have, and few of those with right ones alone."""
    first_wrong = {place.request: place for place in wrong}
    first_right = {place.request: place for place in right if place.request not in first_wrong}
    return separations(list(first_wrong.values()), list(first_right.values()), "all {} wrong requests", REQUESTS)


def chosen(found: Sequence[Separation]) -> str:
    """Return the text of the one feature that separates, with a semicolon before it; empty if none or several do."""
    ordered = sorted(found, key=lambda separation: separation.chance)
    if not ordered or ordered[0].chance > CHANCE:
        return ""
    if len(ordered) > 1 and ordered[1].chance < APART * ordered[0].chance:
        return ""
    return f"; {ordered[0].text}"

"""Mistakes with counter-based random numbers: the oracle with other keys, lanes or trials."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verispec.judge._compare import Array, oracle_outputs
from verispec.judge._mistake import Inputs, Outputs, Rule
from verispec.reference.contracts._fused import TRIALS
from verispec.reference.oracle import _fused, philox
from verispec.reference.oracle.philox import WORD, Draw


@dataclass(frozen=True)
class Key:
    """Values that the numbers of a draw depend on."""

    seed: Any
    pos: Any
    step: Any
    draw: Draw


def other_numbers(change: Callable[[Key], Key] = lambda key: key, period: int = 0) -> Rule:
    """Return the mistake of numbers that `change` chooses, or that return after `period` tokens of a row."""

    def rule(op: str, inputs: Inputs) -> Outputs:
        uniforms, noise = philox.uniform_rows, philox.gumbel

        def key_of(seed: Any, pos: Any, step: Any, draw: Draw) -> Key:
            return change(Key(seed, pos, step, draw))

        def uniform(seed: int, pos: int, step: int, draw: Draw, lane: int = 0) -> float:
            key = key_of(seed, pos, step, draw)
            word = philox.word(key.seed, key.pos, key.step, key.draw, lane % period if period else lane)
            return (word + 0.5) * 2.0**-32

        def uniform_rows(seeds: Array, positions: Array, steps: Array, draw: Draw, lanes: int) -> Array:
            key = key_of(seeds, positions, steps, draw)
            seed, pos, step = (
                np.broadcast_to(np.asarray(value), np.shape(seeds)) for value in (key.seed, key.pos, key.step)
            )
            numbers = uniforms(seed, pos, step, key.draw, min(lanes, period) if period else lanes)
            tiled: Array = np.tile(numbers, -(-lanes // numbers.shape[1]))[:, :lanes]
            return tiled

        def gumbel(seed: int, pos: int, step: int, draw: Draw, lanes: int) -> Array:
            key = key_of(seed, pos, step, draw)
            numbers = noise(key.seed, key.pos, key.step, key.draw, min(lanes, period) if period else lanes)
            tiled: Array = np.tile(numbers, -(-lanes // len(numbers)))[:lanes]
            return tiled

        trial = _fused.Numbers.trial

        def trial_of(own: _fused.Numbers, t: int) -> tuple[float, float]:
            key = key_of(own.seed, own.pos, own.step, Draw.TARGET)
            return trial(replace(own, seed=key.seed, pos=key.pos, step=key.step), t)

        with patched({philox.uniform: uniform, uniforms: uniform_rows, noise: gumbel}, trial_of):
            return oracle_outputs(op, inputs)

    return rule


def other_trials(change: Callable[[Callable[[int], tuple[float, float]], int], tuple[float, float]]) -> Rule:
    """Return the mistake of other numbers of the trials of a draw by inverse CDF; `change` gets the right ones."""

    def rule(op: str, inputs: Inputs) -> Outputs | None:
        if not op.startswith(("verify_one_hot", "verify_draft_logits")):
            return None
        trial = _fused.Numbers.trial
        with patched({}, lambda own, t: change(lambda n: trial(own, n), t)):
            return oracle_outputs(op, inputs)

    return rule


def _returning(turn: int) -> Rule:
    """Return the mistake of numbers that return after `turn` trials; the one after all trials is right."""
    return other_trials(lambda right, t: right(t % turn if t < TRIALS else t))


def _overlapping(size: int) -> Rule:
    """Return the mistake of blocks of `size` tokens whose numbers begin half a block after those of the one before."""

    def rule(op: str, inputs: Inputs) -> Outputs:
        noise = philox.gumbel

        def gumbel(seed: int, pos: int, step: int, draw: Draw, lanes: int) -> Array:
            ids = np.arange(lanes)
            places = ids // size * (size // 2) + ids % size
            numbers: Array = noise(seed, pos, step, draw, int(places.max(initial=0)) + 1)[places]
            return numbers

        with patched({noise: gumbel}, _fused.Numbers.trial):
            return oracle_outputs(op, inputs)

    return rule


def _of_later_positions(op: str, inputs: Inputs) -> Outputs | None:
    if not op.startswith(("verify_one_hot", "verify_draft_logits")):
        return None
    trial = _fused.Numbers.trial
    with patched({}, lambda own, t: trial(replace(own, pos=own.pos + t), 0)):
        return oracle_outputs(op, inputs)


@contextmanager
def patched(functions: Mapping[Any, Any], trial: Callable[[Any, int], tuple[float, float]]) -> Iterator[None]:
    """Replace functions of random numbers in all oracles, and the numbers of trials."""
    before: list[tuple[Any, str, Any]] = [(_fused.Numbers, "trial", _fused.Numbers.trial)]
    for name, module in list(sys.modules.items()):
        if name.startswith("verispec.reference.oracle.") and module is not philox:
            before += [(module, key, value) for key, value in vars(module).items() if _in(value, functions)]
    try:
        for owner, key, value in before:
            setattr(owner, key, trial if owner is _fused.Numbers else functions[value])
        yield
    finally:
        for owner, key, value in before:
            setattr(owner, key, value)


def _in(value: Any, functions: Mapping[Any, Any]) -> bool:
    return any(value is function for function in functions)


def _draw(before: Draw, after: Draw) -> Callable[[Key], Key]:
    return lambda key: replace(key, draw=after) if key.draw is before else key


NUMBER_MISTAKES: dict[str, Rule] = {
    "the upper 32 bits of a seed did not count": other_numbers(lambda key: replace(key, seed=key.seed & WORD)),
    "the upper 32 bits of a position did not count": other_numbers(lambda key: replace(key, pos=key.pos & WORD)),
    "positions did not count": other_numbers(lambda key: replace(key, pos=key.pos * 0)),
    "positions were one too large": other_numbers(lambda key: replace(key, pos=key.pos + 1)),
    "the numbers of the drafts of a request did not count": other_numbers(lambda key: replace(key, step=key.step * 0)),
    **{
        f"tokens {period} ids apart had the same random number": other_numbers(period=period)
        for period in (4, 128, 256, 512, 1024, 2048, 4096, 8192)
    },
    "neighbouring blocks of 1,024 ids shared half of their random numbers": _overlapping(1024),
    "drafts were drawn by the numbers of verification": other_numbers(_draw(Draw.DRAFT, Draw.TARGET)),
    "tokens were drawn by the numbers of drafting": other_numbers(_draw(Draw.TARGET, Draw.DRAFT)),
    "acceptance had the number by which a token is drawn": other_numbers(_draw(Draw.ACCEPT, Draw.TARGET)),
    "every candidate of a draw were tested by the number of the first": other_trials(
        lambda right, t: (right(t)[0], right(0)[1])
    ),
    "every candidate of a draw had the number of the first": other_trials(lambda right, t: right(0)),
    **{f"the numbers of candidates returned after {turn}": _returning(turn) for turn in (4, 8, 16, 32)},
    "a later candidate had the number of the first at as many positions later": _of_later_positions,
    "a candidate were tested by the number that has drawn it": other_trials(lambda right, t: (right(t)[0],) * 2),
}
"""Mistakes of all ops with a counter-based RNG, by their words."""

"""Mistakes of ops in words: a failing call whose outputs are those of one mistake says so.

A mistake is another oracle: the specification with changed inputs, or with other random numbers. Its words are true of
the call: every output element is what the mistake gives, and the specification gives another one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verispec.judge._compare import Array, Compare, exact
from verispec.reference import oracle
from verispec.reference.oracle import _fused, philox
from verispec.reference.oracle._tree import children, draw, power_of_two, total, walk, weights
from verispec.reference.oracle.philox import WORD, Draw

Inputs = Mapping[str, Any]
Outputs = dict[str, Array]
Rule = Callable[[str, Inputs], Outputs | None]
"""From an op and its arguments to the outputs with a mistake; None where the mistake changes nothing by its nature."""

FEW = 2
"""Maximum number of mistakes that a failure names; more of them mean that its few tokens show none."""
FURTHER = 4
"""Calls with other seeds that tell mistakes apart which all explain a call."""
MOST = 1 << 19
"""Elements of all arguments up to which mistakes are looked for: the specification runs once per mistake."""
AS_IF = "all outputs are as if"
"""Words before the mistakes in a failure's message."""
FAULT = "fault"
"""Key of a failure's details; the value of `verispec.run.record.FAULT`, which this package must not import."""


def mistakes_in(
    op: str,
    inputs: Inputs,
    outputs: Mapping[str, Array],
    compare: Mapping[str, Compare],
    among: Collection[str] | None = None,
) -> list[str]:
    """Return the mistakes that give exactly these outputs, in words.

    Args:
        op: name of the op.
        inputs: arguments of the call, outputs as they were before it.
        outputs: outputs of the engine.
        compare: comparison by output name, instead of `exact`.
        among: mistakes to look for; None for all.
    """
    if sum(np.size(value) for value in inputs.values()) > MOST:
        return []
    rules = MISTAKES.get(op, {}) | (NUMBERS if "seed" in inputs else {})
    return [
        mistake
        for mistake, rule in rules.items()
        if (among is None or mistake in among) and _gives(rule, op, inputs, outputs, compare)
    ]


def _gives(rule: Rule, op: str, inputs: Inputs, outputs: Mapping[str, Array], compare: Mapping[str, Compare]) -> bool:
    try:
        expected = rule(op, inputs)
        return expected is not None and all(
            _same(expected[name], got, inputs, compare.get(name, exact)) for name, got in outputs.items()
        )
    except Exception:  # what a mistake leads to need not make sense
        return False


def _same(expected: Array, got: Array, inputs: Inputs, compare: Compare) -> bool:
    """Return True if outputs agree; comparisons of tokens allow near-ties by the right scores, which are not these."""
    if got.dtype.kind != "f":
        return np.array_equal(expected, got)
    return np.array_equal(np.isinf(expected), np.isinf(got)) and not np.any(compare(expected, got, inputs))


def run(op: str, inputs: Inputs, **changed: Any) -> Outputs:
    """Return the outputs of the specification for `inputs` with some of them changed."""
    own = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in inputs.items()}
    return oracle.load(op)(**{**own, **changed})


def without(name: str) -> Rule:
    """Return the mistake of a limit that is ignored, which the call must have."""
    return lambda op, inputs: None if inputs.get(name) is None else run(op, inputs, **{name: None})


def having(name: str, value: Callable[[Any], Any]) -> Rule:
    """Return the mistake of another value of one argument."""
    return lambda op, inputs: None if inputs.get(name) is None else run(op, inputs, **{name: value(inputs[name])})


# Random numbers


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
            return run(op, inputs)

    return rule


def other_trials(change: Callable[[Callable[[int], tuple[float, float]], int], tuple[float, float]]) -> Rule:
    """Return the mistake of other numbers of the trials of a draw by inverse CDF; `change` gets the right ones."""

    def rule(op: str, inputs: Inputs) -> Outputs | None:
        if not op.startswith(("verify_one_hot", "verify_draft_logits")):
            return None
        trial = _fused.Numbers.trial
        with patched({}, lambda own, t: change(lambda n: trial(own, n), t)):
            return run(op, inputs)

    return rule


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


NUMBERS: dict[str, Rule] = {
    "the upper 32 bits of a seed did not count": other_numbers(lambda key: replace(key, seed=key.seed & WORD)),
    "the upper 32 bits of a position did not count": other_numbers(lambda key: replace(key, pos=key.pos & WORD)),
    "positions did not count": other_numbers(lambda key: replace(key, pos=key.pos * 0)),
    "positions were one too large": other_numbers(lambda key: replace(key, pos=key.pos + 1)),
    "the numbers of the drafts of a request did not count": other_numbers(lambda key: replace(key, step=key.step * 0)),
    **{
        f"tokens {period} ids apart had the same random number": other_numbers(period=period)
        for period in (4, 128, 256, 512, 1024, 2048, 4096, 8192)
    },
    "drafts were drawn by the numbers of verification": other_numbers(_draw(Draw.DRAFT, Draw.TARGET)),
    "tokens were drawn by the numbers of drafting": other_numbers(_draw(Draw.TARGET, Draw.DRAFT)),
    "acceptance had the number by which a token is drawn": other_numbers(_draw(Draw.ACCEPT, Draw.TARGET)),
    "every candidate of a draw were tested by the number of the first": other_trials(
        lambda right, t: (right(t)[0], right(0)[1])
    ),
    "every candidate of a draw had the number of the first": other_trials(lambda right, t: right(0)),
    "a candidate were tested by the number that has drawn it": other_trials(lambda right, t: (right(t)[0],) * 2),
}
"""Mistakes of all ops with a counter-based RNG, to follow "as if"."""


# Single ops


def _limits_apart(op: str, inputs: Inputs) -> Outputs | None:
    if inputs["k"] is None or inputs["p"] is None:
        return None
    by_k, by_p = (run(op, inputs, **{name: None})["output"] for name in ("p", "k"))
    return {"output": np.minimum(by_k, by_p)}


def _last_rates(op: str, inputs: Inputs) -> Outputs:
    rates, starts = inputs["acceptance_rates"], inputs["cu_num_logits"]
    outputs = run(op, inputs)
    for b, drafts in enumerate((np.diff(starts) - 1).tolist()):
        own = run(op, inputs, acceptance_rates=rates[max(len(rates) - max(drafts, 0), 0) :])
        for name, values in own.items():
            outputs[name][b] = values[b]
    return outputs


def _last_sibling_alone(op: str, inputs: Inputs) -> Outputs:
    given = dict(inputs)
    divisor = max(given["threshold_acc"], 1e-9)
    vocab, places = given["target_probs"].shape[2], len(given["predicts"])

    def step(b: int, node: int, place: int, is_full: bool) -> tuple[int | None, int]:
        p = weights(given["target_probs"][b, node])
        left, u = p.copy(), np.float64(given["uniform_samples"][b, node])
        links = given["retrieve_next_token"][b, node], given["retrieve_next_sibling"][b]
        for child in () if is_full else children(*links):
            token = int(given["candidates"][b, child])
            if 0 <= token < vocab and 0 <= given["retrieve_index"][b, child] < places:
                if p[token] > 0 and (u < p[token] / divisor or p[token] >= given["threshold_single"]):
                    return child, token
                left[token] = 0.0
        return None, draw(left, given["uniform_samples_for_final_sampling"][b])

    tokens, path, counts = given["predicts"], given["accept_index"], given["accept_token_num"]
    return walk(tokens, path, counts, given["retrieve_index"], step)


def _kept_weight(op: str, inputs: Inputs) -> Outputs | None:
    if inputs["draft_probs"] is None or not inputs["WITHOUT_REPLACEMENT"]:
        return None
    given = dict(inputs)
    vocab, places, request, q_sum = given["target_probs"].shape[2], len(given["predicts"]), -1, 1.0

    def step(b: int, node: int, place: int, is_full: bool) -> tuple[int | None, int]:
        nonlocal request, q_sum
        if b != request:
            request, q_sum = b, 1.0
        p, p_sum, q = weights(given["target_probs"][b, node]), 1.0, weights(given["draft_probs"][b, node])
        links = given["retrieve_next_token"][b, node], given["retrieve_next_sibling"][b]
        for child in () if is_full else children(*links):
            token = int(given["candidates"][b, child])
            if not (0 <= token < vocab and 0 <= given["retrieve_index"][b, child] < places and q[token] > 0):
                continue
            if np.float64(given["uniform_samples"][b, child]) * (p_sum * q[token]) < q_sum * p[token]:
                return child, token
            left = np.maximum(q_sum * p - p_sum * q, 0.0)
            if not total(left) > 0:
                break
            scale = power_of_two(total(left))
            p, p_sum = left * scale, total(left) * scale
            q[token] = 0.0
            scale = power_of_two(total(q))
            q, q_sum = q * scale, total(q) * scale
        return None, draw(p, given["uniform_samples_for_final_sampling"][b])

    tokens, path, counts = given["predicts"], given["accept_index"], given["accept_token_num"]
    return walk(tokens, path, counts, given["retrieve_index"], step)


def _whole_blocks(op: str, inputs: Inputs) -> Outputs | None:
    outputs, size = run(op, inputs), inputs["BLOCK_SIZE"]
    draft = inputs["draft_logits"]
    width = inputs["target_logits"].shape[1]
    whole = (width if draft is None else min(width, draft.shape[2])) // size
    for name in ("local_max", "local_argmax"):
        outputs[name][:, whole:] = inputs[name][:, whole:]
    return outputs


def _compared_wide(op: str, inputs: Inputs) -> Outputs | None:
    given, wanted = inputs["input_ptr"], inputs["replace_from"]
    if given.dtype.kind != "i":
        return None
    same = np.array(int(wanted), given.dtype) if float(wanted).is_integer() else given
    return run(op, inputs, input_ptr=np.where(given.astype(np.float64) == float(wanted), same, given))


def _same_rates(rates: Array) -> Array:
    return np.full_like(rates, rates[0]) if len(rates) else rates


_HEAT = {"the temperature were 1": having("temperature", lambda heat: np.where(heat > 0, 1, heat).astype(heat.dtype))}
_TOP = {"top_k did not count": without("top_k"), "top_p did not count": without("top_p")}
_RATES = {"every draft had the first rate": having("synthetic_conditional_rates_ptr", _same_rates)}

MISTAKES: dict[str, dict[str, Rule]] = {
    "apply_top_k_top_p": {
        "top_p counted the mass of the whole row, not of what top_k keeps": _limits_apart,
        "top_k did not count": without("k"),
        "top_p did not count": without("p"),
    },
    "expand_batch_to_tokens": {"integers were compared with replace_from as floats of 64 bits": _compared_wide},
    "gather_draft_logits_and_target_argmax": {"a last block that is not whole were left out": _whole_blocks},
    "gumbel_sample": _HEAT,
    "probabilistic_rejection": _HEAT,
    "rejection_greedy_sample": _RATES,
    "rejection_random_sample": _RATES,
    "residual_resample": _HEAT,
    "synthetic_rejection": {
        "a request with fewer drafts had the last rates": _last_rates,
        "every draft had the first rate": having("acceptance_rates", _same_rates),
    },
    "verify_draft_logits": {**_HEAT, **_TOP},
    "verify_one_hot": {**_HEAT, **_TOP},
    "verify_tree_sampled": {"the sum of q without rejected drafts were kept for the next node": _kept_weight},
    "verify_tree_typical": {
        "the probabilities of rejected siblings were not added up": _last_sibling_alone,
        "threshold_single did not count": having("threshold_single", lambda _: float("inf")),
        "threshold_acc did not count": having("threshold_acc", lambda _: 1.0),
    },
}
"""Mistakes by op, to follow "as if"."""

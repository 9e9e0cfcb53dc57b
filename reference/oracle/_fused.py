"""Helpers shared by the oracles of the fused family."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from verispec.reference.contracts._fused import TRIALS
from verispec.reference.oracle._request_state import TOGETHER, clean, request_rows
from verispec.reference.oracle.apply_top_k_top_p import order, probabilities_before
from verispec.reference.oracle.philox import Draw, philox4x32, uniform

Array = np.ndarray[Any, Any]

WORD = 0xFFFFFFFF
INVERSE = 3
"""The draw of tokens by inverse CDF."""


@dataclass(frozen=True)
class Rounding:
    """Distance from its bound within which a decision may be taken either way.

    Attributes:
        accept: share of q, for tests of p against q.
        draw: share of the row's mass, for draws by inverse CDF and for top-p.
    """

    accept: float = 0.0
    draw: float = 0.0


EXACT = Rounding()
ALLOWED = Rounding(accept=2.0**-16, draw=2.0**-20)
"""Rounding of float32 kernels: log p - log q of logits up to 2^8 apart, at 2^-24 each, and the contract's 2^-20."""


LEAST = 1e-300
"""Least weight of a token that no limit drops: float64 would take a smaller one for 0, as if it were dropped."""


@dataclass(frozen=True)
class Numbers:
    """The random numbers of one row."""

    seed: int
    pos: int
    step: int

    def acceptance(self) -> float:
        return uniform(self.seed, self.pos, self.step, Draw.ACCEPT)

    def trial(self, t: int) -> tuple[float, float]:
        """Return the number of the inverse CDF of trial `t`, and the number of its acceptance test."""
        counter = (t, (self.step << 8 | INVERSE) & WORD, self.pos & WORD, (self.pos >> 32) & WORD)
        w0, w1, w2, _ = philox4x32(counter, (self.seed & WORD, (self.seed >> 32) & WORD))
        return (w0 * 2**20 + (w1 >> 12) + 0.5) * 2.0**-52, (w2 + 0.5) * 2.0**-32


def exceeds(left: float, right: float, error: float) -> set[bool]:
    """Return the answers to left > right that are right when `right` moves by at most `error`."""
    return {left > right - error, left > right + error}


@dataclass(frozen=True)
class Weights:
    """Weights of a row's tokens.

    Attributes:
        pool: weights of the tokens that candidates are drawn from: all, or with top-k those that are kept.
        kept: weights of the tokens that top-k and top-p keep, and 0 for all others.
    """

    pool: Array
    kept: Array

    def without(self, token: int) -> Weights:
        pool, kept = self.pool.copy(), self.kept.copy()
        pool[token] = kept[token] = 0.0
        return Weights(pool, kept)

    def draw(self, numbers: Numbers, rounding: Rounding) -> Iterator[int]:
        """Yield the first candidate that the limits keep, else a token of those that they keep."""
        for t in range(TRIALS):
            candidates = inverse_cdf(self.pool, numbers.trial(t)[0], rounding.draw)
            yield from (token for token in candidates if self.kept[token] > 0.0)
            if all(self.kept[token] > 0.0 for token in candidates):
                return
        yield from inverse_cdf(self.kept, numbers.trial(TRIALS)[0], rounding.draw)


def relative(logits: Array, temperature: float) -> Array:
    """Return exp(logit / temperature) relative to the largest, `LEAST` or more where a token is not dropped.

    Logits of positive infinity have all of the mass, and a row of minus infinities has none.
    """
    top = logits.max()
    if top == -np.inf:
        return np.zeros(len(logits))
    infinite: Array = (logits == np.inf).astype(np.float64)
    return infinite if top == np.inf else at_least(np.exp((logits - top) / temperature), logits)


def weights(row: Array, temperature: float, k: Any, p: Any, rounding: Rounding) -> Iterator[Weights]:
    """Yield the weights of `relative`.

    Several follow each other where rounding decides the number of tokens that top-p keeps.
    """
    logits = clean(row)
    weight = relative(logits, temperature)
    if not weight.any() or (k is None and p is None):  # most of the rows that are tested; there is nothing to sort for
        yield Weights(weight, weight)
        return
    ids = order(logits)
    has_k = k is not None and 0 < k < len(ids)
    if has_k:
        ids = ids[:k]
    fewest = most = len(ids)
    if p is not None and not p >= 1.0:
        before = probabilities_before(logits[ids] / temperature)
        fewest, most = (max(int((before < float(p) + e).sum()), 1) for e in (-rounding.draw, rounding.draw))
    for count in range(fewest, most + 1):
        kept = np.zeros(len(logits))
        kept[ids[:count]] = weight[ids[:count]]
        yield Weights(kept if has_k else weight, kept)


def argmax_of(logits: Array) -> Callable[[int], int]:
    """Return a function of a row's number to its largest logit's first id; NaN counts as minus infinity.

    The first call does a block of rows at once, for chains of greedy requests have thousands.
    """
    found = np.full(len(logits), -1)
    size = max(TOGETHER // max(logits.shape[1], 1), 1)

    def argmax(row: int) -> int:
        if found[row] < 0:
            found[row : row + size] = clean(logits[row : row + size]).argmax(axis=1)
        return int(found[row])

    return argmax


def at_least(weight: Array, logits: Array) -> Array:
    """Return weights with those of finite logits raised to `LEAST`."""
    raised: Array = np.where(logits > -np.inf, np.maximum(weight, LEAST), weight)
    return raised


def inverse_cdf(weight: Array, u: float, error: float) -> list[int]:
    """Return the first id whose cumulative weight exceeds u times the total; token 0 where there is no weight.

    All ids with weight that a number within `error` of u would give are returned.
    """
    ids = np.flatnonzero(weight)
    cumulative = np.cumsum(weight[ids])
    if not len(ids) or not cumulative[-1] > 0.0:
        return [0]
    ends = [int((cumulative <= (u + e) * cumulative[-1]).sum()) for e in (-error, error)]
    return [int(i) for i in ids[min(ends[0], len(ids) - 1) : ends[1] + 1]]


Outcome = tuple[bool, int]
"""True and the draft if it is accepted, or False and the token that is drawn instead of it."""
Row = Callable[[int, int, int, int, Rounding], Iterable[Outcome]]
"""(state, row, step, draft, rounding) to the outcomes that are right; exactly one if `EXACT`. Draft -1 is no draft."""
OUTPUTS = ("sampled", "num_sampled", "num_rejected", "next_token", "next_row")


def verify(inputs: Mapping[str, Any], rule: Row) -> dict[str, Array]:
    """Walk the rows of every request by `rule` and return its tokens, counts and bookkeeping, one array per output."""
    outputs = {name: inputs[name].copy() for name in OUTPUTS}
    for request in request_rows(inputs["cu_num_logits"], inputs["idx_mapping"]):
        (result,) = results_of_request(inputs, request, rule, EXACT)
        for name, value in result.items():
            outputs[name][request[0]] = value
    return outputs


def allowed_results(op: str, inputs: Mapping[str, Any], b: int) -> list[dict[str, Any]]:
    """Return all outputs of request `b`, by name, that are right for `op` within `ALLOWED`; none for padding."""
    rule: Row = import_module(f"verispec.reference.oracle.{op}").rows(**inputs)
    own = request_rows(inputs["cu_num_logits"][b : b + 2], inputs["idx_mapping"][b : b + 1])
    return [result for request in own for result in results_of_request(inputs, request, rule, ALLOWED)]


def results_of_request(
    inputs: Mapping[str, Any], request: tuple[int, int, int, int], rule: Row, rounding: Rounding
) -> list[dict[str, Any]]:
    """Return the outputs of one request, by name, that are right: exactly one if `EXACT`.

    Args:
        inputs: arguments of the op.
        request: an entry of `request_rows`.
        rule: outcomes of one row.
        rounding: distance within which each decision may be taken either way.
    """
    _, state, first, count = request
    columns = inputs["sampled"].shape[1]
    drafts = inputs["draft_sampled"][first + 1 : first + 1 + count].tolist()
    results = []
    for step, draft in enumerate((*drafts, -1)):
        outcomes = set(rule(state, first + step, step, draft, rounding))
        for token in (token for is_accepted, token in outcomes if not is_accepted):
            sampled = [*drafts[:step], token, *[-1] * (columns - step - 1)]
            results.append(dict(zip(OUTPUTS, (sampled, step + 1, count - step, token, first + step), strict=True)))
        if not any(is_accepted for is_accepted, _ in outcomes):
            break
    return results


def limit(values: Array | None, state: int) -> Any:
    """Return a state's limit, None where no state has one."""
    return None if values is None else values[state]

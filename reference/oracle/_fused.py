"""Helpers shared by the oracles of the fused family."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from verispec.reference.oracle._request_state import clean, request_rows
from verispec.reference.oracle.apply_top_k_top_p import order, probabilities_before
from verispec.reference.oracle.philox import Draw, philox4x32, uniform

Array = np.ndarray[Any, Any]

WORD = 0xFFFFFFFF
INVERSE = 3
"""The draw of tokens by inverse CDF."""


_SHIFTS: ContextVar[tuple[float, float]] = ContextVar("shifts", default=(0.0, 0.0))


@contextmanager
def moved_numbers(accept: float, draw: float) -> Iterator[None]:
    """Move all random numbers, to find the results that rounding allows.

    Args:
        accept: relative change of acceptance numbers.
        draw: change of the numbers of inverse CDFs.
    """
    token = _SHIFTS.set((accept, draw))
    try:
        yield
    finally:
        _SHIFTS.reset(token)


@dataclass(frozen=True)
class Numbers:
    """The random numbers of one row."""

    seed: int
    pos: int
    step: int

    def acceptance(self) -> float:
        return uniform(self.seed, self.pos, self.step, Draw.ACCEPT) * (1.0 + _SHIFTS.get()[0])

    def trial(self, t: int) -> tuple[float, float]:
        """Return the number of the inverse CDF of trial `t`, and the number of its acceptance test."""
        counter = (t, (self.step << 8 | INVERSE) & WORD, self.pos & WORD, (self.pos >> 32) & WORD)
        w0, w1, w2, _ = philox4x32(counter, (self.seed & WORD, (self.seed >> 32) & WORD))
        return (w0 * 2**20 + (w1 >> 12) + 0.5) * 2.0**-52 + _SHIFTS.get()[1], (w2 + 0.5) * 2.0**-32


def weights(row: Array, temperature: float, k: int | None = None, p: float | None = None) -> Array:
    """Return exp(logit / temperature) relative to the largest, 0 for tokens that top-k and top-p drop."""
    logits = clean(row)
    top = logits.max()
    if top == -np.inf:
        return np.zeros(len(logits))
    weight: Array = (logits == np.inf).astype(np.float64)
    if top != np.inf:
        weight = np.exp((logits - top) / temperature)
    if k is None and p is None:
        return weight
    ids = order(logits)
    if k is not None and 0 < k < len(ids):
        ids = ids[:k]
    if p is not None and not p >= 1.0:
        scaled = logits[ids] / temperature
        keep = probabilities_before(scaled) < p
        keep[0] = True
        ids = ids[keep]
    kept = np.zeros(len(logits))
    kept[ids] = weight[ids]
    return kept


def inverse_cdf(weight: Array, u: float) -> int:
    """Return the first id whose cumulative weight exceeds u times the total; token 0 where there is no weight."""
    cumulative = np.cumsum(weight)
    if not cumulative[-1] > 0.0:
        return 0
    above = np.nonzero(cumulative > u * cumulative[-1])[0]
    return int(above[0]) if len(above) else int(np.nonzero(weight)[0][-1])


Row = Callable[[int, int, int, int], tuple[bool, int]]
"""(state, row, step, draft) to whether the draft is accepted, and the token if it is not; draft -1 is no draft."""


def verify_rows(outputs: dict[str, Array], cu_num_logits: Array, idx_mapping: Array, drafts: Array, rule: Row) -> None:
    """Walk the rows of every request by `rule` and write its tokens, counts and bookkeeping."""
    for b, state, first, count in request_rows(cu_num_logits, idx_mapping):
        tokens: list[int] = []
        for step in range(count + 1):
            draft = int(drafts[first + step + 1]) if step < count else -1
            accepted, token = rule(state, first + step, step, draft)
            tokens.append(draft if accepted else token)
            if not accepted:
                break
        outputs["sampled"][b] = -1
        outputs["sampled"][b, : len(tokens)] = tokens
        outputs["num_sampled"][b] = len(tokens)
        outputs["num_rejected"][b] = count + 1 - len(tokens)
        outputs["next_token"][b] = tokens[-1]
        outputs["next_row"][b] = first + len(tokens) - 1


def limit(values: Array | None, state: int) -> Any:
    """Return a state's limit, None where no state has one."""
    return None if values is None else values[state]

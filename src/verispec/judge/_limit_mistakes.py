"""Mistakes of the fused ops with the tokens that limits keep, and with a draw without the rejected draft."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from verispec.judge._compare import Array, oracle_outputs
from verispec.judge._mistake import Inputs, Outputs, Rule
from verispec.judge._tree_mistakes import Draw, mass_before, whole_mass
from verispec.reference.contracts._fused import TRIALS
from verispec.reference.oracle import _fused
from verispec.reference.oracle._fused import Numbers, Outcome, Rounding, Row, Weights, weights
from verispec.reference.oracle._request_state import clean
from verispec.reference.oracle.apply_top_k_top_p import order

Weigh = Callable[[Array, float, Any, Any, Rounding], Iterator[Weights]]
"""`weights`: from a row of logits, its temperature, top-k and top-p to its weights."""


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give an attribute another value for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _may_tie(inputs: Inputs, limit: str) -> bool:
    """Return True if a call has a limit and a row with equal logits."""
    rows = np.sort(inputs["target_logits"], axis=1)
    return inputs.get(limit) is not None and bool((np.diff(rows) == 0).any())


def _keeping(limit: str, weigh: Weigh) -> Rule:
    """Return the mistake of rows with other weights."""

    def rule(op: str, inputs: Inputs) -> Outputs | None:
        if not _may_tie(inputs, limit):
            return None
        with replaced(import_module(f"verispec.reference.oracle.{op}"), "weights", weigh):
            return oracle_outputs(op, inputs)

    return rule


def _ties_of_k(row: Array, temperature: float, k: Any, p: Any, rounding: Rounding) -> Iterator[Weights]:
    logits = clean(row)
    if k is not None and 0 < k < len(logits):
        k = int((logits >= np.sort(logits)[-k]).sum())
    return weights(row, temperature, k, p, rounding)


def _ties_of_p(row: Array, temperature: float, k: Any, p: Any, rounding: Rounding) -> Iterator[Weights]:
    logits = clean(row)
    (first,) = weights(row, temperature, k, None, rounding)
    for own in weights(row, temperature, k, p, rounding):
        if not own.kept.any():
            yield own
            continue
        kept = np.where(logits >= logits[own.kept > 0].min(), first.kept, 0.0)
        yield Weights(kept if own.pool is own.kept else own.pool, kept)


class _Lanes(np.ndarray[Any, Any]):
    """Weights whose sum is that of the first `lanes` positive ones."""

    lanes = 2**62  # arrays that are computed from these count all

    def sum(self, *_: Any, **__: Any) -> Any:
        kept = np.asarray(self)
        return kept[kept > 0][: self.lanes].sum()


class _Whole(np.ndarray[Any, Any]):
    """Weights whose sum is another number."""

    whole = 1.0

    def sum(self, *_: Any, **__: Any) -> Any:
        return self.whole


def _mass_of_first(lanes: int) -> Rule:
    """Return the mistake of kept tokens past the first `lanes` that are left out of their mass."""

    def weigh(row: Array, temperature: float, k: Any, p: Any, rounding: Rounding) -> Iterator[Weights]:
        for own in weights(row, temperature, k, p, rounding):
            if k is None or not lanes < (own.kept > 0).sum() <= k:
                yield own
                continue
            kept = own.kept.view(_Lanes)
            kept.lanes = lanes
            yield replace(own, kept=kept)

    def rule(op: str, inputs: Inputs) -> Outputs | None:
        limit = inputs.get("top_k")
        if limit is None or not (limit > lanes).any():
            return None
        with replaced(import_module(f"verispec.reference.oracle.{op}"), "weights", weigh):
            return oracle_outputs(op, inputs)

    return rule


def _mass_of_k(row: Array, temperature: float, k: Any, p: Any, rounding: Rounding) -> Iterator[Weights]:
    (first,) = weights(row, temperature, k, None, rounding)
    for own in weights(row, temperature, k, p, rounding):
        kept = own.kept.view(_Whole)
        kept.whole = first.kept.sum()
        yield replace(own, kept=kept)


def _dividing_by_k(op: str, inputs: Inputs) -> Outputs | None:
    if inputs.get("top_k") is None or inputs.get("top_p") is None:
        return None
    with replaced(import_module(f"verispec.reference.oracle.{op}"), "weights", _mass_of_k):
        return oracle_outputs(op, inputs)


def _keeping_draft(limit: str) -> Rule:
    """Return the mistake of a draft that is kept although `limit` drops it, since it ties with the last kept token.

    It is accepted by the other's weight, which is the same. Nothing else counts it.
    """

    def rule(op: str, inputs: Inputs) -> Outputs | None:
        if not _may_tie(inputs, limit):
            return None
        module = import_module(f"verispec.reference.oracle.{op}")
        right_rows, asked = module.rows, [-1]

        def weigh(row: Array, temperature: float, k: Any, p: Any, rounding: Rounding) -> Iterator[Weights]:
            for own in weights(row, temperature, k, p, rounding):
                yield _swapped(own, clean(row), asked[0], k, limit)

        def rows(**given: Any) -> Row:
            right = right_rows(**given)

            def outcomes(state: int, row: int, step: int, draft: int, rounding: Rounding) -> list[Outcome]:
                asked[0] = draft
                found = list(right(state, row, step, draft, rounding))
                if found == [(True, draft)]:
                    return found
                asked[0] = -1
                return list(right(state, row, step, draft, rounding))

            return outcomes

        with replaced(module, "weights", weigh), replaced(module, "rows", rows):
            return oracle_outputs(op, inputs)

    return rule


def _swapped(own: Weights, logits: Array, draft: int, k: Any, limit: str) -> Weights:
    """Return weights in which a draft that `limit` drops has the place of the last kept token, if the two tie."""
    if not 0 <= draft < len(logits) or own.kept[draft] > 0 or not own.kept.any():
        return own
    first = order(logits)[: k if k is not None and 0 < k < len(logits) else None]
    last = np.flatnonzero((own.kept > 0) & (logits == logits[draft]))
    if not len(last) or (draft in first) != (limit == "top_p"):
        return own
    kept = own.kept.copy()
    kept[draft], kept[last[-1]] = kept[last[-1]], 0.0
    return replace(own, kept=kept)


@dataclass(frozen=True)
class _Excluding(Weights):
    """Weights without a token, and a wrong draw by them.

    Attributes:
        whole: the weights with it.
        last: the draw.
    """

    whole: Weights
    last: Draw

    def draw(self, numbers: Numbers, rounding: Rounding) -> Iterator[int]:
        for t in range(TRIALS):
            token = self.last(self.whole.pool, self.pool, numbers.trial(t)[0])
            if self.kept[token] > 0.0:
                yield token
                return
        yield self.last(self.whole.kept, self.kept, numbers.trial(TRIALS)[0])


def _without(change: Callable[[Weights, Weights], Weights]) -> Rule:
    """Return the mistake of other weights after a rejected draft: `change` gets those with it and those without it."""
    right = Weights.without

    def rule(op: str, inputs: Inputs) -> Outputs:
        with replaced(_fused.Weights, "without", lambda own, token: change(own, right(own, token))):
            return oracle_outputs(op, inputs)

    return rule


LIMITED: dict[str, Rule] = {
    "all tokens that tie with the last one of top-k were kept": _keeping("top_k", _ties_of_k),
    "all tokens that tie with the last one of top-p were kept": _keeping("top_p", _ties_of_p),
    "a draft that top-k drops were kept where it ties with the last token": _keeping_draft("top_k"),
    "a draft that top-p drops were kept where it ties with the last token": _keeping_draft("top_p"),
    "p were divided by the mass of all tokens that top-k keeps, whatever top-p keeps of them": _dividing_by_k,
    **{
        f"of the tokens that top-k keeps the first {lanes} alone counted in their mass": _mass_of_first(lanes)
        for lanes in (32, 64, 128, 256)
    },
}
"""Mistakes of the fused ops that sample, by their words."""

WITHOUT_DRAFT: dict[str, Rule] = {
    "the rejected draft could be drawn": _without(lambda whole, left: whole),
    "the mass before the drawn token still counted that of the rejected draft": _without(
        lambda whole, left: _Excluding(left.pool, left.kept, whole, mass_before)
    ),
    "the whole mass of the draw still counted that of the rejected draft": _without(
        lambda whole, left: _Excluding(left.pool, left.kept, whole, whole_mass)
    ),
}
"""Mistakes of `verify_one_hot` by their words."""

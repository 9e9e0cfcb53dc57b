"""Tokens at both ends of a vocabulary, without a draft and with one, and mistakes that change their frequencies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from verispec.judge import Mismatch
from verispec.judge.statistics.supposed import EXCLUDED, FITS, Sample, assert_law, p_value
from verispec.run.record import FAULT, LOCATED

Array = np.ndarray[Any, Any]

ENDS = (0, 1, 2, 297, 298, 299)
"""Ids at both ends of a vocabulary of 300, which share all mass of a row."""
MASSES = (0.22, 0.12, 0.16, 0.1, 0.15, 0.25)
NAMES = [f"token {token} for {given}" for given in ("no draft", *(f"draft {n}" for n in ENDS)) for token in ENDS]


def check_ends(seen: Array) -> None:
    """Check tokens [7, 6] without a draft and with each one; a failure names the mistake, or the tokens it is in."""
    exact = np.outer([1 / 2, *[1 / 12] * 6], MASSES)
    sample = Sample(seen.ravel().tolist(), exact.ravel(), mistaken_ends)
    try:
        assert_law(sample, "tokens for a draft or none", NAMES)
    except Mismatch as mismatch:
        failure = mismatch.failure
        if FAULT in failure.details or not (where := wrong_part(seen)):
            raise
        details = {**failure.details, LOCATED: True}
        raise Mismatch(replace(failure, message=f"{where}: {failure.message}", details=details)) from mismatch


def mistaken_ends() -> dict[str, Array]:
    """Return probabilities of `seen` in `check_ends` by the mistake that gives them, in words to follow "as if"."""

    def law(after: Callable[[int, Array], Array]) -> Array:
        """Return the probabilities; `after` has those of a rejection and each token, by the draft and its residual."""
        rows = [p / 2]
        for draft, kept in enumerate(p):
            residual = np.where(np.arange(6) == draft, 0.0, p) / (1 - kept)
            row = after(draft, residual)
            row[draft] += kept
            rows.append(row / 12)
        return np.concatenate(rows)

    def of_quantile(draft: int, residual: Array) -> Array:
        ends = np.clip(residual.cumsum(), p[draft], 1)
        shares: Array = np.diff(ends, prepend=p[draft])
        return shares

    def of_noise(draft: int, residual: Array, *, is_large: bool) -> Array:
        """Return those of a draft that exp(-noise) of token 0 rejects, or one minus it, where that noise is large."""
        first, rest = residual[0], 1 - residual[0]
        found: Array = residual * (1 - p[draft])
        if first:
            wins = first * ((1 - p[draft]) ** (1 / first) if is_large else 1 - p[draft] ** (1 / first))
            found = residual * (1 - p[draft] - wins) / rest
            found[0] = wins
        return found

    p = np.array(MASSES)
    shared = "the number that rejects a draft were made of noise that draws the next token"
    return {
        "the number that rejects a draft were the quantile of the next token": law(of_quantile),
        shared: law(partial(of_noise, is_large=True)),
        f"{shared}, the other way round": law(partial(of_noise, is_large=False)),
        "the token after a rejected draft were drawn from the target": law(lambda draft, _: p * (1 - p[draft])),
    }


def wrong_part(seen: Array) -> str:
    """Return the kind of tokens of `check_ends` that alone does not follow its law; empty if several do not."""
    p, with_draft, drafts = np.array(MASSES), seen[1:], np.arange(6)
    accepted = with_draft[drafts, drafts]
    recovered = with_draft.copy()
    recovered[drafts, drafts] = 0
    residual = np.where(np.eye(6, dtype=bool), 0.0, p) / (1 - p)[:, None]
    parts = {
        "tokens without a draft": p_value(seen[0].tolist(), p),
        "decisions on drafts": p_value([*accepted, *recovered.sum(axis=1)], np.concatenate([p, 1 - p]) / 6),
        "tokens after a rejected draft": p_value(recovered.ravel().tolist(), (residual * (1 - p)[:, None] / 5).ravel()),
    }
    wrong = [name for name, p_of_part in parts.items() if p_of_part < EXCLUDED]
    if len(wrong) != 1 or any(p_of_part < FITS for name, p_of_part in parts.items() if name not in wrong):
        return ""
    right = " and ".join(name for name in parts if name not in wrong)
    return f"{wrong[0]} alone are wrong, {right} are right"

"""Helpers shared by the oracles of the slot-indexed family."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from verispec.reference.oracle.philox import Draw, uniform

Array = np.ndarray[Any, Any]


def clean(logits: Array) -> Array:
    """Return the logits in float64, with NaN replaced by minus infinity."""
    wide = np.asarray(logits, dtype=np.float64)
    return np.where(np.isnan(wide), -np.inf, wide)


def logsumexp(logits: Array) -> float:
    """Return log(sum(exp(logits))), minus infinity for a row without any probability."""
    top = logits.max()
    if top == -np.inf:
        return -np.inf
    return float(top + np.log(np.exp(logits - top).sum()))


def log_prob(logits: Array, normaliser: float) -> Array:
    """Return log p of every entry, minus infinity everywhere in a row without any probability."""
    if normaliser == -np.inf:
        return np.full(len(logits), -np.inf)
    return logits - normaliser


@dataclass
class DraftRow:
    """One draft row of a request: the draft token and both distributions over the shared vocabulary."""

    draft: int
    is_valid: bool
    log_p: Array
    log_q: Array | None
    target_logsumexp: float
    draft_logsumexp: float
    argmax: int
    log_u: float

    @property
    def p_draft(self) -> float:
        """log p of the draft token."""
        return float(self.log_p[self.draft]) if self.is_valid else -np.inf

    @property
    def q_draft(self) -> float:
        """log q of the draft token."""
        if self.log_q is None:
            return 0.0
        return float(self.log_q[self.draft]) if self.is_valid else -np.inf


def request_rows(cu_num_logits: Array, idx_mapping: Array) -> list[tuple[int, int, int, int]]:
    """Return (request, state, first row, number of draft tokens) of every request that is not padding."""
    rows = []
    for b, state in enumerate(idx_mapping):
        if state >= 0:
            first = int(cu_num_logits[b])
            rows.append((b, int(state), first, int(cu_num_logits[b + 1]) - first - 1))
    return rows


def shared_vocabulary(target_logits: Array, draft_logits: Array | None) -> int:
    """Return the number of ids that target and draft share."""
    shared = target_logits.shape[1] if draft_logits is None else min(target_logits.shape[1], draft_logits.shape[2])
    return int(shared)


def verified_requests(
    cu_num_logits: Array,
    idx_mapping: Array,
    target_logits: Array,
    draft_logits: Array | None,
    draft_sampled: Array,
    pos: Array,
    temperature: Array,
    seed: Array,
) -> Iterator[tuple[int, int, list[DraftRow]]]:
    """Yield (request, state, draft rows) of every request that is not padding."""
    vocabulary = shared_vocabulary(target_logits, draft_logits)
    for b, state, first, drafts in request_rows(cu_num_logits, idx_mapping):
        scale = float(temperature[state])
        steps = []
        for i in range(drafts):
            target = clean(target_logits[first + i, :vocabulary])
            target_lse = logsumexp(target)
            log_q, draft_lse = None, 0.0
            has_step = draft_logits is None or i < draft_logits.shape[1]
            if draft_logits is not None and has_step and scale != 0.0:
                draft_row = clean(draft_logits[state, i, :vocabulary]) / scale
                draft_lse = logsumexp(draft_row)
                log_q = log_prob(draft_row, draft_lse)
            draft = int(draft_sampled[first + i + 1])
            steps.append(
                DraftRow(
                    draft=draft,
                    is_valid=has_step and 0 <= draft < vocabulary,
                    log_p=log_prob(target, target_lse),
                    log_q=log_q,
                    target_logsumexp=target_lse,
                    draft_logsumexp=draft_lse,
                    argmax=int(target.argmax()),
                    log_u=float(np.log(uniform(int(seed[state]), int(pos[first + i]), i, Draw.ACCEPT))),
                )
            )
        yield b, state, steps


def accept_while_argmax(steps: list[DraftRow], sampled_row: Array) -> int:
    """Store draft tokens while they equal the argmax, else the argmax once; return the number accepted."""
    for i, step in enumerate(steps):
        sampled_row[i] = step.argmax
        if step.draft != step.argmax:
            return i
    return len(steps)

"""Helpers shared by the oracles of the slot-indexed family."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verispec.reference.oracle.philox import Draw, uniform_rows

Array = np.ndarray[Any, Any]


def clean(logits: Array) -> Array:
    """Return the logits in float64, with NaN replaced by minus infinity."""
    wide = np.asarray(logits, dtype=np.float64)
    return np.where(np.isnan(wide), -np.inf, wide)


def logsumexp(logits: Array) -> Any:
    """Return log(sum(exp(logits))) over the last axis, minus infinity for a row without any probability."""
    top = logits.max(axis=-1)
    shift = np.where(top == -np.inf, 0.0, top)
    with np.errstate(divide="ignore"):
        return shift + np.log(np.exp(logits - shift[..., None]).sum(axis=-1))


def log_prob(logits: Array, normaliser: Any) -> Array:
    """Return log p of every entry [..., V], minus infinity everywhere in a row without any probability.

    Args:
        logits: [..., V].
        normaliser: [...], minus infinity for a row without any probability.
    """
    normaliser = np.asarray(normaliser)[..., None]
    is_empty = normaliser == -np.inf
    return np.where(is_empty, -np.inf, logits - np.where(is_empty, 0.0, normaliser))


TOGETHER = 2**20
"""Logits of a block of requests whose rows are computed at once: 8 MB in float64."""


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
    for block in _blocks(request_rows(cu_num_logits, idx_mapping), TOGETHER // max(vocabulary, 1)):
        counts = [drafts for *_, drafts in block]
        states = np.repeat([state for _, state, *_ in block], counts)
        i = np.concatenate([np.arange(drafts) for drafts in counts])
        rows = np.repeat([first for _, _, first, _ in block], counts) + i
        target = clean(target_logits[rows, :vocabulary])
        target_lse = logsumexp(target)
        log_p, argmax = log_prob(target, target_lse), target.argmax(axis=1)
        has_step, draws = np.full(len(i), True), np.full(len(i), False)
        draft_lse, log_q = np.zeros(len(i)), np.zeros((len(i), vocabulary))
        if draft_logits is not None:
            has_step = i < draft_logits.shape[1]
            draws = has_step & (temperature[states] != 0.0)
            own = states[draws]
            draft = clean(draft_logits[own, i[draws], :vocabulary]) / temperature[own, None].astype(np.float64)
            draft_lse[draws] = logsumexp(draft)
            log_q[draws] = log_prob(draft, draft_lse[draws])
        log_u = np.log(uniform_rows(seed[states], pos[rows], i, Draw.ACCEPT, 1)[:, 0])
        tokens = draft_sampled[rows + 1]
        is_valid = has_step & (tokens >= 0) & (tokens < vocabulary)
        steps = [
            DraftRow(
                draft=int(tokens[n]),
                is_valid=bool(is_valid[n]),
                log_p=log_p[n],
                log_q=log_q[n] if draws[n] else None,
                target_logsumexp=float(target_lse[n]),
                draft_logsumexp=float(draft_lse[n]),
                argmax=int(argmax[n]),
                log_u=float(log_u[n]),
            )
            for n in range(len(i))
        ]
        ends = np.cumsum(counts)
        for (b, state, _, drafts), end in zip(block, ends.tolist(), strict=True):
            yield b, state, steps[end - drafts : end]


def _blocks(requests: Sequence[tuple[int, int, int, int]], rows: int) -> Iterator[Sequence[tuple[int, int, int, int]]]:
    """Yield requests of `request_rows` in turn, as many as have `rows` draft rows together, or one with more."""
    start, held = 0, 0
    for end, (*_, drafts) in enumerate(requests):
        if end > start and held + drafts > rows:
            yield requests[start:end]
            start, held = end, 0
        held += drafts
    if requests:
        yield requests[start:]


def accept_while_argmax(steps: list[DraftRow], sampled_row: Array) -> int:
    """Store draft tokens while they equal the argmax, else the argmax once; return the number accepted."""
    for i, step in enumerate(steps):
        sampled_row[i] = step.argmax
        if step.draft != step.argmax:
            return i
    return len(steps)

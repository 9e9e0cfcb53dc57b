"""Batches whose drafts pass for certain, and batches with padding, ids past the vocabulary, NaN and minus infinity."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from verispec.cases.batches import Batch
from verispec.cases.request_state import RequestBatch

Rng = np.random.Generator


def past(vocab: int) -> list[int]:
    """Return ids past a vocabulary: its size, which alone an equality excludes, and larger ones."""
    return [vocab, vocab + 1, vocab + 3]


def pass_all_but_last(batch: Batch) -> None:
    """Give every draft the probability 1 in both models, but the last one of each request.

    That of requests 1, 3, 5, ... is impossible; the others pass with a probability of one half, or one quarter without
    draft probabilities.
    """
    batch.argmax = batch.draft_token_ids.copy()
    batch.target_probs = np.eye(batch.vocab)[batch.draft_token_ids]
    if batch.draft_probs is not None:
        batch.draft_probs = batch.target_probs.copy()
    for b in map(int, np.flatnonzero(batch.counts)):
        last = batch.at(b).stop - 1
        other = (batch.draft_token_ids[last] + 1) % batch.vocab
        if b % 2:
            batch.argmax[last] = other
            batch.target_probs[last] = np.eye(batch.vocab)[other]
        else:
            batch.target_probs[last, [batch.draft_token_ids[last], other]] = 0.25, 0.75
            if batch.draft_probs is not None:
                batch.draft_probs[last, [batch.draft_token_ids[last], other]] = 0.5


def pad_one(rng: Rng, draft_ids: np.ndarray[Any, Any], chains: Iterable[tuple[int, int]], vocab: int) -> None:
    """Put padding, or an id past a vocabulary that is not small, at one place of each chain (first place, length).

    Chains longer than 1,024 have it past that place, where -1 follows the last id of the vocabulary: as an index it
    leads to the logit of that id in the row before, which is certain.
    """
    for first, length in chains:
        if length:
            ids, places = [-1] if vocab < 10 else [-1, -1, *past(vocab)], np.arange(first, first + length)
            if length > 1024:
                places = places[1024:]
                behind = places[draft_ids[places - 1] == vocab - 1]
                if len(behind):
                    ids, places = [-1], behind
            draft_ids[rng.choice(places)] = rng.choice(ids)


def spoil(rng: Rng, batch: Batch, sure: bool = False) -> None:
    """Put padding tokens among the drafts, and rows of the target that are certain or equal the draft's.

    Where the vocabulary is not small, ids past it are among the drafts too. Of `sure` drafts one of each request is
    replaced.
    """
    if sure:
        pad_one(rng, batch.draft_token_ids, [(batch.at(b).start, n) for b, n in enumerate(batch.counts)], batch.vocab)
        return
    wrong = rng.random(batch.tokens) < 0.15
    ids = [-1] if batch.vocab < 10 else [-1, -1, *past(batch.vocab)]
    batch.draft_token_ids[wrong] = rng.choice(ids, int(wrong.sum()))
    for row in np.flatnonzero(rng.random(batch.tokens) < 0.3):
        sure = np.eye(batch.vocab)[rng.integers(batch.vocab)]
        batch.target_probs[row] = batch.draft_probs[row] if batch.draft_probs is not None and row % 2 else sure


def certain_drafts(batch: RequestBatch) -> None:
    """Let the target agree with every draft but the last one of each request, and the draft with every second one.

    The last draft of requests 1, 3, 5, ... is impossible; the others pass with a probability of 0.55 at a temperature
    of 1. One half would leave a top-p of 0.5 to the rounding.
    """
    drafts = np.maximum(np.diff(batch.cu_num_logits) - 1, 0)
    step = np.concatenate([np.arange(n) for n in drafts])
    row = np.repeat(batch.cu_num_logits[:-1], drafts) + step
    state, token = np.repeat(batch.idx_mapping, drafts), batch.draft_sampled[row + 1]
    batch.target_logits[row, token] = batch.target_logits[row].max(axis=1, initial=-np.inf) + 40
    if batch.draft_logits is not None:
        shared = min(batch.target_logits.shape[1], batch.draft_logits.shape[2])
        scale = np.where(batch.temperature == 0, np.float32(1), batch.temperature)[state]
        batch.draft_logits[state, step, :shared] = batch.target_logits[row, :shared] * scale[:, None]
        batch.draft_logits[state, step, token] -= 40 * scale * (step % 2).astype(np.float32)
    for b in np.flatnonzero(drafts).tolist():
        last = batch.row(b, drafts[b] - 1)
        token = batch.draft_sampled[last + 1]
        batch.target_logits[last, token] = -np.inf
        if b % 2 == 0:
            batch.target_logits[last, token] = np.logaddexp.reduce(batch.target_logits[last]) + 0.2


def adversarial_rows(rng: Rng, batch: RequestBatch, sure: bool = False) -> None:
    """Put padding tokens and ids past the vocabulary among the drafts, NaN and minus infinity among the logits.

    Of `sure` drafts one of each request is replaced.
    """
    if sure:
        chains = [(batch.row(b, 0) + 1, batch.drafts(b)) for b, state in enumerate(batch.idx_mapping) if state >= 0]
        pad_one(rng, batch.draft_sampled, chains, batch.target_logits.shape[1])
        return
    wrong = rng.random(len(batch.draft_sampled)) < 0.15
    ids = [-1, -1, *past(batch.target_logits.shape[1])]
    batch.draft_sampled[wrong] = rng.choice(ids, int(wrong.sum()))
    tables = [batch.target_logits] if batch.draft_logits is None else [batch.target_logits, batch.draft_logits]
    for logits in tables:
        for value, share in ((np.nan, 0.03), (-np.inf, 0.1)):
            logits[rng.random(logits.shape) < share] = value


def impossible_drafts(rng: Rng, batch: RequestBatch) -> None:
    """Give some drafts the probability 0: of the target alone, or of the draft too, where 0 is compared with 0."""
    for row in np.nonzero(rng.random(len(batch.draft_sampled) - 1) < 0.2)[0]:
        state, token = batch.expanded_idx_mapping[row], batch.draft_sampled[row + 1]
        if state < 0 or batch.expanded_local_pos[row + 1] == 0:
            continue
        batch.target_logits[row, token] = -np.inf
        if batch.draft_logits is not None and rng.random() < 0.5:
            batch.draft_logits[state, batch.expanded_local_pos[row], token] = -np.inf

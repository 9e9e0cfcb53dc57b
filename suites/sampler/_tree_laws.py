"""Laws of draft trees: emitted tokens of many requests against the target's probabilities.

The tree has three children below its root and two below each of them. The row of a node depends on its token alone.
The second emitted token therefore follows the row of the first one, in every branch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.engines import Engine
from verispec.judge import Failure, Inconclusive, Kind, Mismatch, OpUnderTest
from verispec.judge.statistics import assert_distribution
from verispec.suites.sampler._trees import Array, Rng, Trees, linked, tokens_at

PARENTS = (-1, 0, 0, 0, 1, 1, 2, 2, 3, 3)
ROOT = (0.4, 0.3, 0.05, 0.25, 0.0)
AFTER = np.array([
    (0.1, 0.2, 0.3, 0.4, 0.0),
    (0.5, 0.0, 0.25, 0.125, 0.125),
    (0.2, 0.2, 0.2, 0.2, 0.2),
    (0.0, 0.9, 0.05, 0.0, 0.05),
    (0.3, 0.3, 0.1, 0.1, 0.2),
])  # fmt: skip
"""The target's row after each token."""
DRAFT_ROOT = (0.1, 0.2, 0.3, 0.2, 0.2)
DRAFT_AFTER = np.array([
    (0.4, 0.1, 0.1, 0.2, 0.2),
    (0.25, 0.25, 0.25, 0.125, 0.125),
    (0.05, 0.05, 0.4, 0.4, 0.1),
    (0.6, 0.1, 0.1, 0.1, 0.1),
    (0.2, 0.2, 0.2, 0.2, 0.2),
])  # fmt: skip
REQUESTS, FEW = 40_000, 3000
"""Requests of a law, and of one in an interpreter."""
GIVEN = ((0, 1, 2), (3, 0))
"""Drafts that are not drawn: those below the root, and those below each of its children."""


def many_requests(engine: Engine) -> int:
    """Return the requests of a law on this engine."""
    slow = any("interpreter" in str(text) for text in engine.describe().details.values())
    return FEW if slow else REQUESTS


def _drawn(rng: Rng, q: Array, count: int, without_replacement: bool) -> Array:
    """Return `count` tokens of each row of q [B, V], in the order in which they were drawn [B, count]."""
    if without_replacement:
        with np.errstate(divide="ignore"):
            return np.argsort(-(np.log(q) + rng.gumbel(size=q.shape)), axis=1)[:, :count]
    return np.asarray((rng.random((len(q), count, 1)) >= np.cumsum(q, axis=1)[:, None, :-1]).sum(axis=2))


def chain_batch(rng: Rng, requests: int) -> tuple[Trees, dict[str, Any]]:
    """Return requests with two drafts, one below the other, drawn from the draft's rows, and their rows."""
    trees = linked([(-1, 0, 1)] * requests)
    trees.tokens[:, 1:2] = _drawn(rng, np.tile(DRAFT_ROOT, (requests, 1)), 1, False)
    trees.tokens[:, 2:] = _drawn(rng, DRAFT_AFTER[trees.tokens[:, 1]], 1, False)
    return trees, _law_values(rng, trees) | {"draft_probs": _rows_of(trees, DRAFT_ROOT, DRAFT_AFTER)}


def _rows_of(trees: Trees, root: Any, after: Array) -> Array:
    """Return the row of each node: `root`, and the row in `after` of each other node's token."""
    rows = after[trees.tokens]
    rows[:, 0] = root
    return rows


def _law_values(rng: Rng, trees: Trees) -> dict[str, Any]:
    return {
        **trees.links(),
        "uniform_samples": rng.random(trees.tokens.shape, np.float32),
        "uniform_samples_for_final_sampling": rng.random(trees.requests, np.float32),
        "target_probs": _rows_of(trees, ROOT, AFTER),
    }


def law_batch(rng: Rng, requests: int, drawn: str) -> tuple[Trees, dict[str, Any]]:
    """Return requests whose drafts are "given", or drawn from the draft's rows "alike" or "different", and their rows.

    Args:
        rng: source of drafts and uniform samples.
        requests: number of requests.
        drawn: kind of draft of a node's children.
    """
    trees = linked([PARENTS] * requests)
    tokens = trees.tokens
    if drawn == "given":
        tokens[:, 1:4] = GIVEN[0]
        tokens[:, 4:] = GIVEN[1] * 3
    else:
        different = drawn == "different"
        tokens[:, 1:4] = _drawn(rng, np.tile(DRAFT_ROOT, (requests, 1)), 3, different)
        for node in (1, 2, 3):
            tokens[:, 2 * node + 2 : 2 * node + 4] = _drawn(rng, DRAFT_AFTER[tokens[:, node]], 2, different)
    values = _law_values(rng, trees)
    if drawn != "given":
        values["draft_probs"] = _rows_of(trees, DRAFT_ROOT, DRAFT_AFTER)
    return trees, values


def check_law(op: OpUnderTest, trees: Trees, values: dict[str, Any]) -> None:
    """Check the first emitted token, and the second one given the first where a draft was accepted."""
    outputs = op.call(values, shapes=trees.shapes())[1]
    path, vocab = outputs["accept_index"].astype(np.int64), len(ROOT)
    first = _possible(tokens_at(outputs["predicts"], path[:, 0]))
    names = [f"token {token}" for token in range(vocab)]
    assert_distribution(np.bincount(first, minlength=vocab).tolist(), ROOT, "the first token", names)
    accepted = outputs["accept_token_num"] > 0
    if not accepted.any():
        raise Inconclusive("no draft was accepted, so that no second token follows one")
    second = _possible(tokens_at(outputs["predicts"], path[accepted, 1]))
    seen = np.bincount(first[accepted] * vocab + second, minlength=vocab * vocab)
    exact = AFTER * np.bincount(first[accepted], minlength=vocab)[:, None] / accepted.sum()
    pairs = [f"token {two} after {one}" for one, two in np.ndindex(vocab, vocab)]
    assert_distribution(seen.tolist(), exact.ravel(), "the second token, given an accepted first one", pairs)


def _possible(tokens: Array) -> Array:
    """Return the tokens.

    Raises:
        Mismatch: one is outside of the vocabulary.
    """
    outside = tokens[(tokens < 0) | (tokens >= len(ROOT))]
    if outside.size:
        message = f"a token is {int(outside[0])}, expected 0 to {len(ROOT) - 1}"
        raise Mismatch(Failure(Kind.VALUE, message, "predicts", wrong=outside.size, total=tokens.size))
    return tokens

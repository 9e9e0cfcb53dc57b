"""Packed batches of draft tokens in the shapes that break kernels.

A batch has B requests with counts[b] draft tokens each, N in total, over a vocabulary of V tokens. The counts have
names, so that a case id says which batch ran. They put requests without drafts first, last and in the middle, mix
lengths, and include the longest request that engines allow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

COUNTS: dict[str, tuple[int, ...]] = {
    "one": (3,),
    "even": (2, 2, 2, 2),
    "ragged": (3, 1, 5, 3),
    "gaps": (0, 3, 0, 0, 4, 1, 0),
    "none": (0, 0, 0),
    "empty": (),
    "longest": (128, 1, 127),
    "wide": (1,) * 257,
}
"""Draft tokens of each request, by name. The ragged ones are on average as many as the first, so that no total is right
for equal counts alone.
"""

MARGIN = 1e-4
"""Minimum relative distance of u from p/q in random batches. float32 rounds p/q by 2^-23, far less than this, so that
every correctly rounded implementation decides alike.
"""


@dataclass(slots=True)
class Batch:
    """A packed batch in float64 and int64."""

    counts: Array
    vocab: int
    draft_token_ids: Array
    target_probs: Array
    draft_probs: Array | None
    uniform: Array
    inv_q: Array
    bonus: Array
    recovered: Array
    argmax: Array
    is_greedy: Array

    @property
    def requests(self) -> int:
        """The number of requests, B."""
        return int(self.counts.shape[0])

    @property
    def tokens(self) -> int:
        """The total number of draft tokens, N."""
        return int(self.counts.sum())

    def keep_distance(self) -> None:
        """Halve each uniform sample within `MARGIN` of p/q of its draft."""
        rows = np.arange(self.tokens)
        p = self.target_probs[rows, self.draft_token_ids]
        q = 1.0 if self.draft_probs is None else self.draft_probs[rows, self.draft_token_ids]
        ratio = np.divide(p, q, out=np.zeros(self.tokens), where=np.asarray(q) > 0)
        is_near = np.abs(self.uniform - ratio) < MARGIN * ratio
        self.uniform[is_near] = ratio[is_near] / 2

    @property
    def most(self) -> int:
        """The largest count, at least 1; engines size their output by it."""
        return int(max([1, *self.counts.tolist()]))

    @property
    def cu(self) -> Array:
        """Inclusive cumulative counts, without a leading zero."""
        return np.cumsum(self.counts)

    def at(self, b: int) -> slice:
        """Return the rows of the packed tensors that belong to request b."""
        end = int(self.cu[b])
        return slice(end - int(self.counts[b]), end)


def rounded(values: Array, dtype: str) -> Array:
    """Return `values` rounded to `dtype`, as float64."""
    import torch

    held: Array = torch.from_numpy(np.asarray(values, dtype=np.float64)).to(getattr(torch, dtype)).double().numpy()
    return held


def probabilities(rng: np.random.Generator, rows: int, vocab: int, dtype: str = "float32") -> Array:
    """Return softmax rows of normal logits with a standard deviation of 2.

    Args:
        rng: source of the logits.
        rows: number of rows.
        vocab: vocabulary size V.
        dtype: dtype to which the probabilities are rounded.

    Returns:
        [rows, V] float64.
    """
    logits = rng.normal(scale=2.0, size=(rows, vocab))
    weights = np.exp(logits - logits.max(axis=1, keepdims=True)) if rows else logits
    return rounded(weights / weights.sum(axis=1, keepdims=True) if rows else weights, dtype)


def drawn(rng: np.random.Generator, probs: Array) -> Array:
    """Return an id drawn from each row of `probs`, [n, V]: the one that `rng.choice` would draw, row by row."""
    cdf = (probs / probs.sum(axis=1, keepdims=True)).cumsum(axis=1)
    cdf /= cdf[:, -1:]
    ids: Array = (cdf <= rng.random((len(probs), 1))).sum(axis=1)
    return ids


def random_batch(
    rng: np.random.Generator,
    counts: tuple[int, ...] | list[int] | Array,
    vocab: int,
    *,
    draft: bool = True,
    greedy: float = 0.0,
    dtype: str = "float32",
) -> Batch:
    """Return a batch that production could produce: valid ids, probabilities that sum to one, u in (0, 1).

    Every u keeps a relative distance of `MARGIN` from p/q. Where the vocabulary allows it, recovered
    and bonus tokens differ from the draft token, so that a mix-up shows.

    Args:
        rng: source of all values.
        counts: draft tokens of each request.
        vocab: vocabulary size V.
        draft: False omits draft probabilities (n-gram drafts).
        greedy: expected share of greedy requests.
        dtype: dtype that the probabilities are rounded to.
    """
    counts = np.asarray(counts, dtype=np.int64)
    n, b = int(counts.sum()), len(counts)
    p = probabilities(rng, n, vocab, dtype)
    q = probabilities(rng, n, vocab, dtype) if draft else None
    ids = rng.integers(0, vocab, size=n)
    if q is not None and n:
        ids = drawn(rng, q) if vocab <= 4096 else ids
    uniform = rng.random(n) * 0.999 + 0.0005
    ratio = p[np.arange(n), ids] / (q[np.arange(n), ids] if q is not None else 1.0)
    close = np.abs(ratio - uniform) <= MARGIN * np.maximum(ratio, uniform)
    uniform[close] *= 1 - 4 * MARGIN
    argmax = np.where(rng.random(n) < 0.7, ids, rng.integers(0, vocab, size=n))
    step = rng.integers(1, max(vocab, 2), size=n)
    return Batch(
        counts=counts,
        vocab=vocab,
        draft_token_ids=ids,
        target_probs=p,
        draft_probs=q,
        uniform=uniform,
        inv_q=1.0 / rng.exponential(size=(b, vocab)),
        bonus=rng.integers(0, vocab, size=b),
        recovered=(ids + step) % vocab,
        argmax=argmax,
        is_greedy=rng.random(b) < greedy,
    )

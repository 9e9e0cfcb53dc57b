"""Calls that the cases of verify_one_hot and verify_draft_logits share, most of them on limits.

`make(seed, counts, vocab, temperature=...)` returns the batch of an op.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from verispec.cases.request_state import RequestBatch, select_requests
from verispec.judge import OpUnderTest, assert_same
from verispec.suites.sampler._fused import (
    EVERY_LIMIT,
    adjacent,
    adjacent_ties,
    cluster,
    draft_at_limit,
    equal_pairs,
    limits,
    one_per_part,
    stripe,
    verify,
)

Make = Callable[..., RequestBatch]


def verify_mixed_limits(op: OpUnderTest, make: Make, seed: int, k: str | None, p: str | None) -> None:
    """Verify with a top-k and a top-p, of which "mixed" stands for one per request."""
    ks = None if k is None else [0, 3, 37, 2, 50, -1] if k == "mixed" else int(k)
    ps = None if p is None else [1.0, 0.5, 0.0, 2.0, 0.8] if p == "mixed" else float(p)
    requests = make(seed, "ragged")
    verify(op, requests, **limits(requests, ks, ps))


def verify_small_limits(op: OpUnderTest, make: Make, seed: int) -> None:
    """Verify with a top-k of one to three, fewer than a row has parts; each draft is the last one that is kept."""
    requests = make(seed, "ragged", 20_000, temperature=1.3)
    given = limits(requests, [1, 2, 3])
    verify(op, draft_at_limit(requests, given["top_k"]), **given)


def verify_top_k_beside_a_top_p_of_one(op: OpUnderTest, make: Make, seed: int) -> None:
    """Verify flat rows, in which each token weighs nearly as much as the first one."""
    requests = make(seed, "ragged", 20_000, temperature=1.0)
    requests.target_logits *= 0.03
    verify(op, requests, **limits(requests, [400, 700, 2000, 10_000], [1.0, 1.0, 0.9, 1.0, 1.0]))


def verify_top_p(op: OpUnderTest, make: Make, seed: int, spread: str, p: str) -> None:
    """Verify with a top-p of peaked, flat or equal rows."""
    requests = make(seed, "ragged", 8193, temperature=1.0)
    requests.target_logits *= {"peaked": 3.0, "flat": 0.1, "equal": 0.0}[spread]
    verify(op, requests, **limits(requests, p=float(p)))


def verify_one_kept_token(op: OpUnderTest, make: Make, seed: int, vocab: int) -> None:
    """Verify with a top-p of 0 and less; two thirds of the drafts are the token that is kept."""
    requests = make(seed, "ragged", vocab, temperature=1.3)
    draft_at_limit(requests, np.resize([1, 1, 0], len(requests.temperature)))
    verify(op, requests, **limits(requests, p=[0.0, -0.5, -2.0, -float("inf")]))


def verify_a_mass_of_exactly_p(op: OpUnderTest, make: Make, seed: int, vocab: int) -> None:
    """Compare with the oracle alone: no number of the call is rounded, so that none may differ."""
    requests = equal_pairs(make(seed, "ragged", vocab, temperature=1.0))
    shapes = {"sampled": (requests.requests, requests.columns)}
    op.check_outputs(requests.arguments(op.contract, **limits(requests, p=0.5)), shapes=shapes)


def verify_clustered_tokens(op: OpUnderTest, make: Make, seed: int) -> None:
    """Verify with a top-p of rows whose tokens lie in clusters."""
    requests = make(seed, "wide", 20_011, temperature=1.0)
    cluster(np.random.default_rng(seed), requests.target_logits)
    verify(op, requests, **limits(requests, p=0.95))


def verify_striped_rows(op: OpUnderTest, make: Make, seed: int) -> None:
    """Verify rows that a sample of evenly spread places misjudges."""
    requests = make(seed, "one", 20_011, temperature=1.0)
    stripe(requests.target_logits)
    for k, p in ((5000, None), (None, 0.5), (9000, 0.5)):
        verify(op, requests, **limits(requests, k, p))


def verify_one_token_of_each_part(op: OpUnderTest, make: Make, seed: int, *, is_slow: bool) -> None:
    """Verify more than a hundred wide rows, then short ones; each draft is the last token that top-k keeps."""
    for vocab, ks in ((700, (5,)),) if is_slow else ((4097, (17, 5, 2)), (300, (2, 1))):
        requests = make(seed, "wide", vocab, temperature=1.0)
        one_per_part(requests.target_logits)
        for k in ks:
            given = limits(requests, k)
            verify(op, draft_at_limit(requests, given["top_k"]), **given)


def verify_ties(op: OpUnderTest, make: Make, seed: int, k: str, p: str | None) -> None:
    """Verify rows of rounded logits, whose lower ids are kept, then rows that tie at their limit."""
    requests = make(seed, "wide", 300, temperature=1.0)
    requests.target_logits[:] = np.round(requests.target_logits)
    given = limits(requests, int(k), None if p is None else float(p))
    verify(op, requests, **given)
    requests = adjacent_ties(draft_at_limit(requests, given["top_k"]), given["top_k"], every=2)
    verify(op, requests, **given)
    if p is None:  # of k + 2 equal tokens with the whole mass, top-p keeps k
        verify(op, requests, **limits(requests, p=(int(k) - 0.5) / (int(k) + 2)))


def verify_ties_beside_others(op: OpUnderTest, make: Make, seed: int, p: str) -> None:
    """Verify rows of ties whose neighbours are the next numbers of float32."""
    requests = adjacent(np.random.default_rng(seed), make(seed, "gaps", 5000, temperature=1.0))
    verify(op, requests, **limits(requests, None, float(p)))


def verify_special_rows(op: OpUnderTest, make: Make, seed: int, rows: str) -> None:
    """Verify rows of NaN and infinities with every limit.

    Two tokens with positive infinity are in the first and in the last block of any size.
    """
    requests = make(seed, "ragged", 2100 if rows == "two infinite" else 300)
    last = requests.target_logits.shape[1] - 89
    if rows == "minus infinity":
        requests.target_logits[:] = -np.inf
    elif rows in {"some", "all"}:
        requests.target_logits[:, :: 2 if rows == "some" else 1] = np.nan
    else:
        requests.target_logits[:, [7, last][: 1 if rows == "one infinite" else 2]] = np.inf
        requests.draft_sampled[::2] = last
    for k, p in EVERY_LIMIT:
        verify(op, requests, **limits(requests, k, p))


def verify_one_by_one(op: OpUnderTest, make: Make, seed: int, limited: str) -> None:
    """Verify wide requests together and alone: all threads handle one alone, a single thread one of many."""
    requests = make(seed, "ragged", 70_000, temperature=1.0)
    more: dict[str, Any] = limits(requests, 50, 0.9) if limited == "yes" else {}
    together = verify(op, requests, **more)["sampled"]
    for b in range(requests.requests):
        alone = verify(op, select_requests(requests, [b]), **more)["sampled"][0]
        assert_same(f"request {b} alone", together[b, : len(alone)].tolist(), alone.tolist())

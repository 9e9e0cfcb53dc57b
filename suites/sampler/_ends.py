"""Rows whose token is id 0, or one of those at which a loop over tiles of the vocabulary may end too early.

Vocabularies are one past and one short of multiples of common tile sizes. Calls have few rows, so that several programs
or threads share one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.cases.request_state import Array, RequestBatch, random_requests
from verispec.suites.sampler._callers import of_models
from verispec.suites.sampler._trees import Trees

TILES = (1024, 2048, 4096, 8192)
VOCABS = [2047, 2049, 8191, 8193]
AT_ENDS = "only an id at an end"
REACH = of_models("a grammar leaves one token of any id")


def end_ids(vocab: int) -> Array:
    """Return the ends of the vocabulary, the first id of the last tile of each size, and the id before it.

    The largest comes first.
    """
    firsts = {(vocab - 1) // tile * tile for tile in TILES}
    return np.array(sorted({0, vocab - 1, *firsts, *(first - 1 for first in firsts if first)}, reverse=True))


def leave_ends(logits: Array) -> Array:
    """Make an id of `end_ids` each row's only possible token, of two rows in five its likeliest; return them [rows]."""
    at, ids = np.arange(len(logits)), end_ids(logits.shape[1])
    chosen: Array = ids[(at + at // len(ids)) % len(ids)]
    logits[at % 5 < 3] = -np.inf
    logits[at, chosen] = 24.0
    return chosen


def end_requests(seed: int, vocab: int, *, draft: bool, accepted: bool, temperature: float | None) -> RequestBatch:
    """Return requests of one draft token whose target rows have `leave_ends`.

    Args:
        seed: source of all values.
        vocab: vocabulary size V.
        draft: True gives the draft a distribution of its own.
        accepted: True drafts the likely token, False the one before it.
        temperature: temperature of all requests, None for a mix with greedy ones.
    """
    rng = np.random.default_rng(seed)
    requests = random_requests(rng, (1,) * len(end_ids(vocab)), vocab, draft=draft, temperature=temperature, spare=0)
    chosen = leave_ends(requests.target_logits)
    for b in range(requests.requests):
        row = requests.row(b, 0)
        requests.draft_sampled[row + 1] = (chosen[row] - (not accepted)) % vocab
    return requests


def both_fates(seed: int, vocab: int, **options: Any) -> list[RequestBatch]:
    """Return `end_requests` whose drafts are rejected, and such whose drafts are accepted."""
    return [end_requests(seed, vocab, accepted=accepted, **options) for accepted in (False, True)]


def leave_probabilities(trees: Trees, values: dict[str, Any]) -> None:
    """Leave each node of a batch of trees one possible token, of `end_ids` in turn; every second first child has it."""
    target = values["target_probs"]
    requests, nodes, vocab = target.shape
    chosen = np.resize(end_ids(vocab), (requests, nodes))
    target[:] = np.arange(vocab) == chosen[..., None]
    trees.tokens[:, 1:] = (chosen[:, :1] - np.arange(requests)[:, None] % 2) % vocab
    values.update(trees.links())

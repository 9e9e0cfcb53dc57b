"""Rows whose logits undo their Gumbel samples, and drafts that are about as likely as their acceptance number.

A logarithm is a polynomial within one binade, and an error of a coefficient shows near the ends of its range alone. So
the tokens that must win, and the samples that must accept, are spread over a binade evenly.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from verispec.cases.request_state import Array, RequestBatch, random_requests
from verispec.judge import Mismatch
from verispec.reference.oracle.philox import Draw, uniform_rows

LIMIT = 2.0
"""Largest Gumbel sample, and logit, of a token that counts. Rounding is allowed for in proportion to logits."""
GAP = 1.5 * 2.0**-16 * LIMIT
"""Lead of the winner: 1.5 times the difference for which GUM-8 and RSR-14 call either token correct."""
DRAFTS, CANDIDATES = 128, 64
"""Requests of a batch, and positions of each among which one is chosen by its number."""


def level_rows(noise: Array) -> Array:
    """Return float32 logits [rows, V] with which all scores of a row are equal, but for one that is larger by `GAP`.

    A token whose noise is too large by `GAP` wins a row of another, and one whose noise is too small loses its own.
    Tokens past `LIMIT` are masked. Half of the winners are spread by 1 - u, the argument of the inner logarithm, and
    the others by that of the outer one.

    Args:
        noise: [rows, V] exact Gumbel samples.
    """
    outer = np.exp(-noise)
    arguments = np.concatenate((np.exp(-outer)[: len(noise) // 2], outer[len(noise) // 2 :]))
    can_win = np.abs(noise) <= LIMIT - GAP
    rows = np.where(can_win, -noise, -np.inf)
    for row, places, possible in zip(rows, _places(arguments), can_win, strict=True):
        row[np.where(possible, places, np.inf).argmin()] += GAP
    return rows.astype(np.float32)


def level_drafts(seed: int) -> RequestBatch:
    """Return requests of one draft each whose p is a little more than u, or less in every second request.

    The numbers u are spread over a binade, so that an error of their logarithm turns a decision. Temperatures are 1.
    """
    rng = np.random.default_rng(seed)
    requests = random_requests(rng, (1,) * DRAFTS, 2, draft=False, temperature=1.0, spare=0)
    positions = rng.integers(0, 2**40, (DRAFTS, CANDIDATES))
    seeds = np.repeat(requests.seed[requests.idx_mapping], CANDIDATES)
    numbers = uniform_rows(seeds, positions.ravel(), np.zeros_like(seeds), Draw.ACCEPT, 1).reshape(positions.shape)
    near = np.where(np.abs(numbers - 0.5) < 0.4, _places(numbers), np.inf).argmin(axis=1)
    for b, chosen in enumerate(near):
        u = float(numbers[b, chosen])
        logit = np.log(u / (1 - u)) / 2
        p = u * np.exp(1.5 * 2.0**-16 * max(1.0, abs(logit)) * (1 - 2 * (b % 2)))
        row = requests.row(b, 0)
        token = requests.draft_sampled[row + 1]
        requests.pos[row] = positions[b, chosen]
        requests.target_logits[row, [token, 1 - token]] = np.log(p / (1 - p)) / 2 * np.array([1.0, -1.0])
    return requests


@contextmanager
def told_level() -> Iterator[None]:
    """Add to a mismatch of `level_drafts` how close the numbers of its decisions are."""
    try:
        yield
    except Mismatch as mismatch:
        message = f"{mismatch.failure.message}, where log p and log u differ by 1.5 times what rounding explains"
        raise Mismatch(replace(mismatch.failure, message=message)) from None


def _places(arguments: Array) -> Array:
    """Return how far each number is from the place in its binade that its half of the rows gives its row."""
    half = max(len(arguments) // 2, 1)
    wanted = (np.arange(len(arguments)) % half / half)[:, None]
    away = np.abs(np.log2(arguments) % 1.0 - wanted)
    nearest: Array = np.minimum(away, 1.0 - away)
    return nearest

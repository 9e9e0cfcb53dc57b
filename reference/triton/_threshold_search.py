"""Threshold search: for each row an interval (low, high] of logits that contains the top-k or top-p threshold.

The threshold is the largest logit t such that the tokens with logits >= t number at least k, or have at least the
probability p. Both are a weight: 1 per token under top-k, exp(logit - max) under top-p. Rows are split into chunks, one
program each, so that few rows still fill the device.

1. survey: read each chunk once for its weight, and for the maximum of each group of 64 tokens; later passes skip groups
below the interval. The fused kernels do this as they verify.
2. guess: an interval from a part of the row, or of a row with fewer tokens to keep than groups from the maxima alone:
at least k tokens are as large as the k-th largest maximum of a group.

An interval is a guess: ``_thresholds`` weighs what is in it and above it, and takes the whole row if it is wrong.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ._launches import launch
from ._logit_keys import KeyRows, columns_of, limits, load_ordered, needs_threshold, scale_of_row, target_of, weight
from ._threshold_guess import SAMPLE, guess_by_count, guess_by_mass, load_sample

CHUNK: tl.constexpr = tl.constexpr(4096)
GROUP: tl.constexpr = tl.constexpr(64)
GROUPS: tl.constexpr = tl.constexpr(CHUNK.value // GROUP.value)
FIELDS: tl.constexpr = tl.constexpr(4)
"""State of a row: maximum, total weight and interval."""
TOP: tl.constexpr = tl.constexpr(0)
TOTAL: tl.constexpr = tl.constexpr(1)
LOW: tl.constexpr = tl.constexpr(2)
HIGH: tl.constexpr = tl.constexpr(3)


class Search(NamedTuple):
    """Scratch for the rows between launches, on the device of the logits. Weights are relative to a chunk's maximum."""

    state: Any
    tops: Any
    """Maximum of each chunk."""
    totals: Any
    """Weight of each chunk."""
    maxima: Any
    """Maximum of each group."""
    above: Any
    """Weight of the tokens of each chunk above the interval; of those before the draft, until the interval is known."""
    within: Any
    """Weight of the tokens of each chunk in the interval; number of those before the draft, until it is known."""
    needed: Any
    """Rows to search, those of a request first in its places, then -1."""
    tiles: Any = None
    """Weights of tiles of tokens, of which a token is drawn: of all, and in the end of those that are kept."""


def make_search(count: int, chunks: int, device: Any, **shared: Any) -> Search:
    """Allocate scratch for `count` rows, but for the `shared` tensors."""

    def scratch(*shape: int) -> Any:
        return torch.empty((count, *shape), dtype=torch.float32, device=device)

    above, within = torch.empty((2, count, chunks), dtype=torch.float32, device=device).unbind()
    return Search(
        state=scratch(FIELDS.value),
        tops=shared["tops"] if shared else scratch(chunks),
        totals=shared["totals"] if shared else scratch(chunks),
        maxima=scratch(chunks, GROUPS.value),
        above=above,
        within=within,
        needed=torch.empty(count, dtype=torch.int32, device=device),
        tiles=shared.get("tiles"),
    )


@triton.jit
def load_groups(maxima, at):
    """Return the maxima of the groups of chunk `at` as a column; chunks are numbered across rows."""
    return tl.load(maxima + at * GROUPS + tl.arange(0, GROUPS)[:, None])


@triton.jit
def chunk_ids(chunk):
    """Return the ids of a chunk, one row per group."""
    return chunk * CHUNK + tl.arange(0, GROUPS)[:, None] * GROUP + tl.arange(0, GROUP)[None, :]


@triton.jit
def _survey_kernel(search, rows):
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    k, p = limits(rows, row)
    has_k = k < rows.vocabulary
    if (not has_k) & (p >= 1.0):
        return
    at = row * rows.chunks + chunk
    ids = chunk_ids(chunk)
    x = load_ordered(rows, row, ids, ids < rows.vocabulary)
    group_tops = tl.max(x, axis=1)
    tl.store(search.maxima + at * GROUPS + tl.arange(0, GROUPS), group_tops)
    top = tl.max(group_tops, axis=0)
    tl.store(search.tops + at, top)
    if rows.p is not None:  # noqa: SIM102 -- decided when the kernel is compiled
        if not has_k:
            weights = tl.where(x > float("-inf"), weight(x, top, scale_of_row(rows, row)), 0.0)
            tl.store(search.totals + at, tl.sum(weights))


@triton.jit
def guess(search, rows, row, k, p, PADDED: tl.constexpr):
    """Store the maximum of a row with limits, its weight, and an interval."""
    has_k = k < rows.vocabulary
    fields = search.state + row * FIELDS
    lane = tl.arange(0, PADDED)
    tops = tl.load(search.tops + row * rows.chunks + lane, mask=lane < rows.chunks, other=float("-inf"))
    top = tl.max(tops, axis=0)
    tl.store(fields + TOP, top)
    factor = tl.maximum(rows.vocabulary / SAMPLE, 1.0)
    if rows.k is not None:  # noqa: SIM102 -- decided when the kernel is compiled
        if has_k:
            if k <= rows.vocabulary // GROUP:
                group = tl.arange(0, PADDED * GROUPS)
                exists = group < rows.chunks * GROUPS
                maxima = tl.load(search.maxima + row * rows.chunks * GROUPS + group, mask=exists, other=float("-inf"))
                low, _high = guess_by_count(maxima, exists, top, k, 1.0)
                tl.store(fields + LOW, low)
                tl.store(fields + HIGH, top)
            else:
                x, mask = load_sample(rows, row)
                low, high = guess_by_count(x, mask, top, k, factor)
                tl.store(fields + LOW, low)
                # With both limits top-p applies to the first k tokens.
                tl.store(fields + HIGH, tl.where(p < 1.0, top, high))
    if rows.p is not None:  # noqa: SIM102
        if not has_k:
            scale = scale_of_row(rows, row)
            totals = tl.load(search.totals + row * rows.chunks + lane, mask=lane < rows.chunks, other=0.0)
            total = tl.sum(totals * weight(tops, top, scale), axis=0)
            tl.store(fields + TOTAL, total)
            x, mask = load_sample(rows, row)
            low, high = guess_by_mass(x, mask, top, total, scale, p, rows.vocabulary, factor)
            tl.store(fields + LOW, low)
            tl.store(fields + HIGH, high)


@triton.jit
def _guess_kernel(thresholds, search, rows, PADDED: tl.constexpr):
    columns = columns_of(rows)
    first = tl.program_id(0).to(tl.int64) * columns
    found = first
    for row in range(first, first + columns):
        if needs_threshold(rows, row):
            k, p = limits(rows, row)
            if (k < rows.vocabulary) | (p < 1.0):
                guess(search, rows, row, k, p, PADDED)
                tl.store(search.needed + found, row)
                found += 1
            else:
                at = target_of(rows, row)
                tl.store(thresholds.nth_logit + at, float("-inf"))
                tl.store(thresholds.last_id + at, -1)
    if found < first + columns:
        tl.store(search.needed + found, -1)


@triton.jit
def needed_row(search, rows, n):
    """Return the n-th row that a program searches, or -1 after the last."""
    columns = columns_of(rows)
    return tl.load(search.needed + tl.program_id(0) * columns + n, mask=n < columns, other=-1).to(tl.int64)


def survey(rows: KeyRows, count: int) -> Search:
    """Read `count` rows for a search. What is stored of a row without limits is undefined."""
    search = make_search(count, rows.chunks, rows.logits.device)
    launch(_survey_kernel, (count, rows.chunks), search, rows, num_warps=4)
    return search


def guess_intervals(thresholds: Any, search: Search, rows: KeyRows, programs: int) -> None:
    """Guess an interval for every row that needs a threshold, and set the threshold of those without limits."""
    padded = triton.next_power_of_2(rows.chunks)
    launch(_guess_kernel, (programs,), thresholds, search, rows, PADDED=padded, num_warps=8, maxnreg=128)

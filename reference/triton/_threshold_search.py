"""State of a search for the thresholds of rows, and the survey that begins it.

The threshold is the largest logit t such that the tokens with logits >= t number at least k, or have at least the
probability p. Both are a weight: 1 per token under top-k, exp(logit - max) under top-p. Rows are split into chunks, one
program each, so that few rows still fill the device.

The survey reads each chunk once for its weight, and for the maximum of each group of 64 tokens; later passes skip
groups below the interval. The fused kernels do this as they verify.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ._launches import launch
from ._logit_keys import KeyRows, limits, load_ordered, scale_of_row, weight

CHUNK: tl.constexpr = tl.constexpr(4096)
GROUP: tl.constexpr = tl.constexpr(64)
GROUPS: tl.constexpr = tl.constexpr(CHUNK.value // GROUP.value)
FEW: tl.constexpr = tl.constexpr(128)
"""Groups, and tokens of them, up to which a threshold is found without an interval."""
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
    """Maximum of each group; in the fused kernels without top-k, of groups that lie across a chunk."""
    above: Any
    """Weight of the tokens of each chunk above the interval; of those before the draft, until the interval is known."""
    within: Any
    """Weight of the tokens of each chunk in the interval; number of those before the draft, until it is known."""
    needed: Any
    """Rows to search, in any order."""
    needed_count: Any
    """Number of these."""
    few_groups: Any
    """Groups with tokens that can stay, of rows that have few."""
    few_ids: Any
    """Their tokens."""
    few_values: Any
    """Logits of these, at last weights."""
    tiles: Any = None
    """Weights of tiles of tokens: of those above the interval, and in the end of those that are kept."""
    kept: Any = None
    """Weight of the tokens of each chunk that are kept."""
    pool: Any = None
    """Weights of tiles of the tokens that candidates are drawn from: all, or with top-k those that are kept."""
    weights: Any = None
    """Weight of each group that lies across a chunk."""


def make_search(count: int, chunks: int, device: Any, **shared: Any) -> Search:
    """Allocate scratch for `count` rows, but for the `shared` tensors."""

    def scratch(*shape: int) -> Any:
        return torch.empty((count, *shape), dtype=torch.float32, device=device)

    above, within = torch.empty((2, count, chunks), dtype=torch.float32, device=device).unbind()
    numbers = torch.empty((2, count, FEW.value), dtype=torch.int32, device=device)
    return Search(
        state=scratch(FIELDS.value),
        tops=shared["tops"] if shared else scratch(chunks),
        totals=shared["totals"] if shared else scratch(chunks),
        maxima=scratch(chunks, GROUPS.value),
        above=above,
        within=within,
        needed=torch.empty(count, dtype=torch.int32, device=device),
        needed_count=torch.empty(1, dtype=torch.int32, device=device),
        few_groups=numbers[0],
        few_ids=numbers[1],
        few_values=scratch(FEW.value),
        tiles=torch.empty_like(shared["pool"]) if shared else None,
        kept=torch.empty_like(shared["totals"]) if shared else None,
        pool=shared.get("pool"),
        weights=scratch(chunks, GROUPS.value) if shared else None,
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
    if (row == 0) & (chunk == 0):
        tl.store(search.needed_count, 0)
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
def needed_row(search, n):
    """Return the n-th row to search, or -1 after the last."""
    return tl.load(search.needed + n, mask=n < tl.load(search.needed_count), other=-1).to(tl.int64)


def survey(rows: KeyRows, count: int) -> Search:
    """Read `count` rows for a search. What is stored of a row without limits is undefined."""
    search = make_search(count, rows.chunks, rows.logits.device)
    launch(_survey_kernel, (count, rows.chunks), search, rows, num_warps=4)
    return search

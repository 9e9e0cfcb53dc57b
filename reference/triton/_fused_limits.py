"""Top-k and top-p of the fused kernels.

The scan adds up the tokens before each draft in the order of top-k and top-p. So it knows if the limits keep the draft,
and it has bounds for the weight of all tokens that they keep. A draft is left open if the bounds do not agree on it.
Exact limits are found for the rows with open drafts, and for the row that the token is drawn from if it needs them
(``_fused_candidates``).
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ._fused_rows import RequestTensors, chunk_weights, weights_of
from ._logit_keys import ACCEPTED, OPEN, REJECTED, KeyRows, limits
from ._logits import load_logits
from ._threshold_gather import TILE
from ._threshold_search import CHUNK, GROUP, GROUPS

SLACK: tl.constexpr = tl.constexpr(2.0**-14)
"""Relative distance from a bound at which rounding decides nothing."""


@triton.jit
def scan_limited(search, chunks, rows, slot, row, split, chunk, token, k, scale):
    """Store the statistics of one chunk of a row with limits, and those of the tokens before its draft."""
    at = slot * rows.chunks + split
    has_draft = (token >= 0) & (token < rows.vocabulary)
    drafted = load_logits(rows.logits + row * rows.row_stride, rows.id_stride, token, has_draft)
    groups = at * GROUPS + tl.arange(0, GROUPS)
    if rows.k is None:
        maxima = tl.max(tl.max(across(chunk), axis=0), axis=1)
    else:
        maxima = tl.max(tl.reshape(chunk, (GROUPS, GROUP)), axis=1)
    tl.store(search.maxima + groups, maxima)
    top = tl.max(maxima, axis=0)
    tl.store(search.tops + at, top)
    mass = chunk_weights(chunk, top, scale)
    if rows.k is None:
        tl.store(search.weights + groups, tl.sum(tl.sum(across(mass), axis=0), axis=1))
        store_tiles(search, chunks, at, mass)
    elif k < rows.vocabulary:
        # `find_thresholds` weighs the tiles of such a row, with its exact limits.
        tl.store(search.totals + at, tl.sum(mass, axis=0))
    else:
        store_tiles(search, chunks, at, mass)
    if has_draft:
        ids = split * CHUNK + tl.arange(0, CHUNK)
        is_before = (chunk > drafted) | ((chunk == drafted) & (ids < token.to(tl.int32)))
        tl.store(search.above + at, tl.sum(tl.where(is_before, mass, 0.0), axis=0))
        if rows.k is not None:
            tl.store(search.within + at, tl.sum(is_before.to(tl.int32), axis=0).to(tl.float32))


@triton.jit
def store_tiles(search, chunks, at, mass):
    """Store the weights of the tiles of a chunk, and its total."""
    tiles = tl.sum(tl.reshape(mass, (CHUNK // TILE, TILE)), axis=1)
    tl.store(chunks.tiles + at * (CHUNK // TILE) + tl.arange(0, CHUNK // TILE), tiles)
    tl.store(search.totals + at, tl.sum(tiles, axis=0))


@triton.jit
def across(values):
    """Return the values of a chunk by the groups that lie across it: 8 ids of each of its lines of 512.

    A group is in two threads then, where 64 adjacent ids would be in sixteen.
    """
    return tl.reshape(values, (CHUNK // (GROUPS * 8), GROUPS, 8))


@triton.jit
def groups_of(search, rows, slot, top, scale, SPLITS: tl.constexpr):
    """Return the maximum of each group of a row, and its weight, [SPLITS * GROUPS]."""
    lane = tl.arange(0, SPLITS * GROUPS)
    mask = lane < rows.chunks * GROUPS
    at = slot * rows.chunks
    tops = tl.load(search.tops + at + lane // GROUPS, mask=mask, other=float("-inf"), cache_modifier=".cg")
    maxima = tl.load(search.maxima + at * GROUPS + lane, mask=mask, other=float("-inf"), cache_modifier=".cg")
    weights = tl.load(search.weights + at * GROUPS + lane, mask=mask, other=0.0, cache_modifier=".cg")
    return maxima, weights * weights_of(tops, top, scale)


@triton.jit
def weight_of_last(groups, top, want, scale):
    """Return a weight that the last token which top-p keeps does not exceed, relative to the row's maximum."""
    maxima, weights = groups
    largest = weights_of(maxima, top, scale)
    # Search its binary logarithm, from 0 to -32 in steps of 1/4.
    log = tl.zeros((), tl.float32)
    for turn in range(7):
        less = log - tl.exp2(4.0 - turn)
        # Tokens above a weight are in groups whose maximum is above it.
        above = tl.sum(tl.where(largest > tl.exp2(less), weights, 0.0), axis=0)
        log = tl.where(above < want * (1.0 - SLACK), less, log)
    return tl.exp2(log)


@triton.jit
def bounds_of_kept(rows, k, p, total, before, count, drafted, largest, last):
    """Return bounds of the weight that limits keep if they keep a draft, and whether they may and must keep it.

    Args:
        rows: rows with limits.
        k: tokens to keep, the vocabulary size for no limit.
        p: probability to keep.
        total: weight of all tokens.
        before: weight of the tokens before the draft.
        count: number of the tokens before the draft.
        drafted: weight of the draft.
        largest: weight of some tokens, at most k.
        last: weight that no token exceeds which top-p keeps last after the draft.
    """
    low = total
    high = total
    may = tl.full((), True, tl.int1)
    must = may
    upto = before + drafted
    if rows.k is not None:  # noqa: SIM102 -- decided when the kernel is compiled
        if k < rows.vocabulary:
            may = count < k
            must = may
            low = tl.minimum(total, tl.maximum(upto, largest))
            high = tl.minimum(total, before + (k - count) * drafted)
    if rows.p is not None:  # noqa: SIM102
        if p < 1.0:
            is_first = before == 0.0
            may = may & (is_first | (before < p * high * (1.0 + SLACK)))
            must = must & (is_first | (before < p * low * (1.0 - SLACK)))
            is_last = upto >= p * high * (1.0 + SLACK)
            low = tl.maximum(p * low, upto)
            high = tl.where(is_last, upto, tl.minimum(high, p * high + last))
    return low * (1.0 - SLACK), high * (1.0 + SLACK), may, must


@triton.jit
def decision_of(search, rows, slot, row, token, margin, scale, SPLITS: tl.constexpr):
    """Return the decision on a row's draft, as far as statistics of the row make it.

    Args:
        search: statistics of the chunks.
        rows: rows with limits.
        slot: row of the statistics.
        row: row of the logits.
        token: the draft.
        margin: log2 of the quotient of the draft's probability, without limits, and the number that it must exceed.
        scale: log2(e) / temperature.
        SPLITS: power of two, at least the chunks of a row.
    """
    decision = tl.where(margin > 0.0, ACCEPTED, REJECTED)
    k, p = limits(rows, slot)
    if ((k < rows.vocabulary) | (p < 1.0)) & (margin > float("-inf")):
        lane = tl.arange(0, SPLITS)
        mask = lane < rows.chunks
        at = slot * rows.chunks + lane
        tops = tl.load(search.tops + at, mask=mask, other=float("-inf"), cache_modifier=".cg")
        top = tl.max(tops, axis=0)
        largest = weights_of(tops, top, scale)
        total = tl.sum(tl.load(search.totals + at, mask=mask, other=0.0, cache_modifier=".cg") * largest, axis=0)
        before = tl.sum(tl.load(search.above + at, mask=mask, other=0.0, cache_modifier=".cg") * largest, axis=0)
        count = tl.zeros((), tl.float32)
        if rows.k is not None:
            count = tl.sum(tl.load(search.within + at, mask=mask, other=0.0, cache_modifier=".cg"), axis=0)
        drafted = load_logits(rows.logits + row * rows.row_stride, rows.id_stride, token, True)
        drafted = weights_of(drafted, top, scale)
        # If k is at least the number of chunks, all chunk maxima are among the first k tokens.
        some = tl.where(k >= rows.chunks, tl.sum(largest, axis=0), 0.0)
        bounds = bounds_of_kept(rows, k, p, total, before, count, drafted, some, drafted)
        decision = decision_by(bounds, margin, total)
        if rows.k is None:  # noqa: SIM102 -- decided when the kernel is compiled
            if decision == OPEN:
                groups = groups_of(search, rows, slot, top, scale, SPLITS)
                last = tl.minimum(weight_of_last(groups, top, p * total, scale), drafted)
                bounds = bounds_of_kept(rows, k, p, total, before, count, drafted, some, last)
                decision = decision_by(bounds, margin, total)
    return decision


@triton.jit
def decision_by(bounds, margin, total):
    """Return the decision on a draft by bounds of the weight that limits keep."""
    low, high, may, must = bounds
    is_accepted = must & (margin > tl.log2(high / total))
    is_rejected = (may == 0) | (margin < tl.log2(low / total))
    return tl.where(is_rejected, REJECTED, tl.where(is_accepted, ACCEPTED, OPEN))


def limited_rows(
    logits: Any,
    vocabulary: int,
    requests: RequestTensors,
    splits: int,
    rejected: Any,
    decision: Any,
    settled: Any,
    top_k: Any,
    top_p: Any,
) -> KeyRows:
    """Return the rows of all sampled requests with their limits.

    Args:
        logits: [L, at least vocabulary], before temperature.
        vocabulary: tokens of a row that count.
        requests: the batch.
        splits: chunks of a row.
        rejected: memory for the first rejected step of each request.
        decision: memory for the scan's decision on each draft.
        settled: memory that marks the requests whose results are written, or None.
        top_k: [R] tokens to keep by state, or None.
        top_p: [R] probability to keep by state, or None.
    """
    k, p = (None if values is None else values.contiguous() for values in (top_k, top_p))
    owners = (requests.cu_num_logits, requests.idx_mapping, requests.temperature, requests.columns, rejected, decision)
    row_stride, id_stride = logits.stride()
    return KeyRows(logits, row_stride, id_stride, k, p, vocabulary, splits, *owners, settled)

"""Draws of requests with top-k and top-p.

With top-p alone a candidate is drawn from all tokens of the row. The groups of 64 tokens whose maximum is above a
candidate bound the weight of the tokens before it, which mostly tells if top-p keeps it. Else one more pass weighs the
tokens before the first few candidates. Neither needs a threshold. Requests that this does not settle, and those with
top-k, get exact thresholds (``_thresholds``), and their token is drawn by these.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ._fused_draw import (
    TRIALS,
    cumulative,
    draw,
    draw_sum,
    load_tile_of,
    load_tiles,
    probability_of_draft,
    trial_numbers,
    without_draft,
)
from ._fused_limits import SLACK
from ._fused_rows import DRAFT, ONE_HOT, load_kept, load_row, weights_of

WEIGHED: tl.constexpr = tl.constexpr(4)
"""Candidates of a request before which the tokens are weighed."""
COLUMN: tl.constexpr = tl.constexpr(512)
"""Tokens side by side that are read at once; those below one another are in one thread."""
LINES: tl.constexpr = tl.constexpr(4)
EVERY_ID: tl.constexpr = tl.constexpr(2**31 - 1)


class Candidates(NamedTuple):
    """Scratch for the candidates of each request, with all that a pass over its row needs, so that it waits once."""

    settled: Any
    """1 for a request whose results are written."""
    step: Any
    """Step of the row to weigh, -1 for none."""
    row: Any
    """That row."""
    count: Any
    """Candidates in the list."""
    scale: Any
    """log2(e) / temperature."""
    top: Any
    """Maximum of the row."""
    last: Any
    """Weight that the last token which top-p keeps does not exceed."""
    ids: Any
    """The candidates, in the order of their trials, [requests, WEIGHED]."""
    logits: Any
    """Their logits."""
    needs: Any
    """Numbers that their probabilities must exceed."""
    before: Any
    """Weight of the tokens before each of them that a program has seen, [requests, splits, WEIGHED]."""


def make_candidates(requests: int, splits: int, device: Any) -> Candidates:
    """Allocate scratch for a batch."""
    settled, step, count, row = torch.empty((4, requests), dtype=torch.int32, device=device).unbind()
    scale, top, last = torch.empty((3, requests), dtype=torch.float32, device=device).unbind()
    ids = torch.empty((requests, WEIGHED.value), dtype=torch.int32, device=device)
    logits, needs = torch.empty((2, *ids.shape), dtype=torch.float32, device=device).unbind()
    before = torch.empty((requests, splits, WEIGHED.value), dtype=torch.float32, device=device)
    return Candidates(settled, step, row, count, scale, top, last, ids, logits, needs, before)


@triton.jit
def list_candidates(
    candidates,
    chunks,
    target,
    draft,
    requests,
    request,
    state,
    row,
    n,
    p,
    rejected,
    is_residual,
    top,
    total,
    draft_top,
    draft_total,
    scale,
    vocabulary,
    KIND: tl.constexpr,
    TILES: tl.constexpr,
    DRAWN: tl.constexpr,
):
    """Draw candidates from all tokens of a row with top-p, and list the first that may pass; return their number."""
    sums, tops = load_tiles(chunks, request * requests.columns + n, TILES)
    masses = (sums * weights_of(tops, top, scale)).to(tl.float64)
    hole = tl.full((), -1, tl.int64)
    if KIND == ONE_HOT:  # noqa: SIM102 -- decided when the kernel is compiled
        if is_residual:
            tile = load_tile_of(target, row, None, rejected, vocabulary)
            masses, hole = without_draft(masses, tile, rejected, is_residual, top, scale, TILES)
    pool = cumulative(masses, TILES)
    seed = tl.load(requests.seed + state)
    pos = tl.load(requests.pos + row)
    lane = tl.arange(0, DRAWN)
    count = tl.zeros((), tl.int32)
    turn = tl.zeros((), tl.int32)
    while (count < WEIGHED // 2) & (turn < TRIALS // DRAWN):
        u, v = trial_numbers(seed, pos, n, turn * DRAWN + lane)
        drawn = draw(pool, u, target, row, None, hole, top, scale, vocabulary, TILES)
        logits = load_row(target, row, drawn, drawn < vocabulary)
        weight = weights_of(logits, top, scale)
        need = tl.zeros((DRAWN,), tl.float32)
        if KIND == DRAFT:  # noqa: SIM102
            if is_residual:
                q = probability_of_draft(draft, state, n, drawn, draft_top, draft_total, scale, vocabulary)
                need = (q / (1.0 - v)).to(tl.float32)
        # Top-p keeps at least p of the mass, so that no probability exceeds this.
        may = ((weight > need * (p * total) * (1.0 - SLACK)) & (weight > 0.0)).to(tl.int32)
        place = count + tl.cumsum(may, axis=0) - 1
        is_listed = (may > 0) & (place < WEIGHED)
        at = request * WEIGHED + place
        tl.store(candidates.ids + at, drawn.to(tl.int32), mask=is_listed)
        tl.store(candidates.logits + at, logits, mask=is_listed)
        tl.store(candidates.needs + at, need, mask=is_listed)
        count += tl.sum(may, axis=0)
        turn += 1
    return tl.minimum(count, WEIGHED)


@triton.jit
def candidate(candidates, request, j, count):
    """Return candidate `j` and its logit; one that no token is before if the list is shorter."""
    at = request * WEIGHED + j
    return tl.load(candidates.ids + at, mask=j < count, other=0), tl.load(
        candidates.logits + at, mask=j < count, other=float("inf")
    )


@triton.jit
def weight_before(x, mass, start, lane, LENGTH: tl.constexpr, listed):
    """Return the weight of the tokens before a candidate, by column: of higher logit, or an equal one and a lower id.

    Args:
        x: logits of tokens.
        mass: their weights.
        start: the first of these tokens.
        lane: number of each of them.
        LENGTH: number of tokens.
        listed: the candidate and its logit.
    """
    token, logit = listed
    # One comparison is enough if all ids are on one side of the candidate.
    if start + LENGTH <= token:
        is_before = x >= logit
    elif start > token:
        is_before = x > logit
    else:
        is_before = (x > logit) | ((x == logit) & (start + lane < token))
    return tl.sum(tl.where(is_before, mass, 0.0), axis=0)


@triton.jit
def bounds_before(candidates, groups, request, count, top, scale):
    """Return bounds of the weight of the tokens before each candidate, by groups, [WEIGHED]."""
    lane = tl.arange(0, WEIGHED)
    logits = tl.load(candidates.logits + request * WEIGHED + lane, mask=lane < count, other=float("inf"))[:, None]
    maxima, weights = groups
    largest = weights_of(maxima, top, scale)
    low = tl.sum(tl.where(maxima[None, :] > logits, largest[None, :], 0.0), axis=1)
    high = tl.sum(tl.where(maxima[None, :] >= logits, weights[None, :], 0.0), axis=1)
    return low * (1.0 - SLACK), high * (1.0 + SLACK)


@triton.jit
def sums_before(candidates, request, splits, parts, SPLITS: tl.constexpr):
    """Return the weight of the tokens before each candidate, of the sums that programs left, [WEIGHED]."""
    part = tl.arange(0, SPLITS)
    at = (request * splits + part)[:, None] * WEIGHED + tl.arange(0, WEIGHED)[None, :]
    before = tl.load(candidates.before + at, mask=(part < parts)[:, None], other=0.0, cache_modifier=".cg")
    return tl.sum(before.to(tl.float64), axis=0)


@triton.jit
def total_of(chunks, slot, scale, SPLITS: tl.constexpr):
    """Return the maximum of a row and the weight of all its tokens, float64."""
    split = tl.arange(0, SPLITS)
    is_split = split < chunks.splits
    at = slot * chunks.splits + split
    tops = tl.load(chunks.top + at, mask=is_split, other=float("-inf"))
    totals = tl.load(chunks.total + at, mask=is_split, other=0.0)
    top = tl.max(tops, axis=0)
    return top, tl.sum(totals * weights_of(tops, top, scale).to(tl.float64), axis=0)


@triton.jit
def settle(candidates, request, count, least, most, p, top, total, last, scale):
    """Return the first candidate that top-p keeps and that passes, or -1 if weights do not tell.

    Args:
        candidates: the candidates of all requests.
        request: the request.
        count: its candidates.
        least: weight that the tokens before each of them have at least.
        most: weight that they have at most.
        p: probability to keep.
        top: maximum of the row.
        total: weight of all its tokens.
        last: weight that the last token which top-p keeps does not exceed.
        scale: log2(e) / temperature.
    """
    lane = tl.arange(0, WEIGHED)
    is_listed = lane < count
    token = tl.load(candidates.ids + request * WEIGHED + lane, mask=is_listed, other=0).to(tl.int64)
    need = tl.load(candidates.needs + request * WEIGHED + lane, mask=is_listed, other=0.0)
    logits = tl.load(candidates.logits + request * WEIGHED + lane, mask=is_listed, other=float("-inf"))
    weight = weights_of(logits, top, scale)
    want = p * total
    is_kept = (most < want) | (most == 0.0)
    is_dropped = (least >= want) & (least > 0.0)
    # The kept tokens weigh at least `want`, and exceed it by less than their last one, which may be the candidate.
    low = tl.maximum(want, least + weight) * (1.0 - SLACK)
    is_last = least + weight >= want * (1.0 + SLACK)
    high = tl.where(is_last, most + weight, tl.minimum(total, want + tl.minimum(weight, last))) * (1.0 + SLACK)
    is_refused = (is_listed == 0) | is_dropped | (weight <= need * low)
    first = tl.min(tl.where(is_refused, WEIGHED, lane), axis=0)
    passes = (lane == first) & is_kept & (weight > need * high)
    return tl.max(tl.where(passes, token, -1), axis=0)


@triton.jit
def draw_limited(
    chunks,
    kept_chunks,
    target,
    draft,
    requests,
    request,
    state,
    row,
    n,
    has_k,
    rejected,
    is_residual,
    top,
    total,
    draft_top,
    draft_total,
    scale,
    vocabulary,
    KIND: tl.constexpr,
    TILES: tl.constexpr,
    DRAWN: tl.constexpr,
):
    """Return the token of a row whose exact thresholds are known.

    Args:
        chunks: the row's chunks, with the weights of the pool's tiles.
        kept_chunks: the same, with the weights of the kept tokens.
        target: target logits with thresholds.
        draft: draft logits.
        requests: the batch.
        request: the request.
        state: its state.
        row: row of the logits.
        n: step of the row.
        has_k: the request has top-k, so that the pool is what the limits keep.
        rejected: the rejected draft.
        is_residual: truth value, False where that draft does not count.
        top: maximum of the row.
        total: weight of the kept tokens.
        draft_top: maximum of the draft's row.
        draft_total: its weight.
        scale: log2(e) / temperature.
        vocabulary: tokens of a row that count.
        KIND: kind of the drafts.
        TILES: power of two, at least the tiles of a row.
        DRAWN: candidates of a turn.
    """
    slot = request * requests.columns + n
    sums, tops = load_tiles(chunks, slot, TILES)
    to_row = weights_of(tops, top, scale)
    masses = (sums * to_row).to(tl.float64)
    kept_limit = (tl.load(target.nth_logit + row), tl.load(target.last_id + row))
    limit = (tl.where(has_k, kept_limit[0], float("-inf")), tl.where(has_k, kept_limit[1], EVERY_ID))
    hole = tl.full((), -1, tl.int64)
    if KIND == ONE_HOT:  # noqa: SIM102 -- decided when the kernel is compiled
        if is_residual:
            tile = load_tile_of(target, row, limit, rejected, vocabulary)
            masses, hole = without_draft(masses, tile, rejected, is_residual, top, scale, TILES)
    pool = cumulative(masses, TILES)
    seed = tl.load(requests.seed + state)
    pos = tl.load(requests.pos + row)
    lane = tl.arange(0, DRAWN)
    token = tl.full((), -1, tl.int64)
    turn = tl.zeros((), tl.int32)
    while (token < 0) & (turn < TRIALS // DRAWN):
        u, v = trial_numbers(seed, pos, n, turn * DRAWN + lane)
        drawn = draw(pool, u, target, row, limit, hole, top, scale, vocabulary, TILES)
        p = weights_of(load_kept(target, row, drawn, drawn < vocabulary), top, scale) / total
        q = tl.zeros((DRAWN,), tl.float32)
        if KIND == DRAFT:  # noqa: SIM102
            if is_residual:
                q = probability_of_draft(draft, state, n, drawn, draft_top, draft_total, scale, vocabulary)
        chosen = tl.min(tl.where(v * p < p - q, lane, DRAWN), axis=0)
        token = tl.max(tl.where(lane == chosen, drawn, -1), axis=0)
        turn += 1
    if token < 0:
        u, _v = trial_numbers(seed, pos, n, TRIALS + tl.arange(0, 1))
        if KIND == DRAFT:  # noqa: SIM102
            if is_residual:
                token = draw_sum(
                    tl.max(u, axis=0),
                    target,
                    draft,
                    row,
                    state,
                    n,
                    top,
                    total,
                    draft_top,
                    draft_total,
                    scale,
                    vocabulary,
                )
        if token < 0:
            if not has_k:
                sums, tops = load_tiles(kept_chunks, slot, TILES)
                masses = (sums * to_row).to(tl.float64)
                hole = tl.full((), -1, tl.int64)
                if KIND == ONE_HOT:  # noqa: SIM102
                    if is_residual:
                        tile = load_tile_of(target, row, kept_limit, rejected, vocabulary)
                        masses, hole = without_draft(masses, tile, rejected, is_residual, top, scale, TILES)
            tokens = draw(cumulative(masses, TILES), u, target, row, kept_limit, hole, top, scale, vocabulary, TILES)
            token = tl.max(tokens, axis=0)
    return token

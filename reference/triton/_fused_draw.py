"""Draws of the fused family: a token of a request's last row by inverse CDF, and the request's results."""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from ._fused_rows import DRAFT, GREEDY, ONE_HOT, decide, kept, load_kept, load_row, scale_of, weights_of
from ._logits import load_logits
from ._threshold_gather import TILE
from ._threshold_search import CHUNK
from .philox import draw_words

TRIALS: tl.constexpr = tl.constexpr(64)
SUM_BLOCK: tl.constexpr = tl.constexpr(1024)
INVERSE: tl.constexpr = tl.constexpr(3)


class OutputTensors(NamedTuple):
    """Output tensors, with strides."""

    sampled: Any
    sampled_stride_0: Any
    sampled_stride_1: Any
    num_sampled: Any
    num_sampled_stride: Any
    num_rejected: Any
    num_rejected_stride: Any
    next_token: Any
    next_token_stride: Any
    next_row: Any
    next_row_stride: Any


@triton.jit
def of_step(values, step, STEPS: tl.constexpr):
    """Return the entry of one step of a vector."""
    return tl.sum(tl.where(tl.arange(0, STEPS) == step, values, 0), axis=0)


@triton.jit
def accepted_of(accepted, drafts, COLUMNS: tl.constexpr):
    """Return the number of drafts before the first that is not accepted."""
    step = tl.arange(0, COLUMNS)
    return tl.min(tl.where(accepted, COLUMNS, tl.minimum(step, drafts)), axis=0).to(tl.int64)


@triton.jit
def load_tiles(chunks, slot, TILES: tl.constexpr):
    """Return the weight of every tile of a row and the maximum that it is relative to, [TILES]."""
    tile = tl.arange(0, TILES)
    mask = tile < chunks.splits * (CHUNK // TILE)
    at = slot * chunks.splits
    tops = tl.load(chunks.top + at + tile // (CHUNK // TILE), mask=mask, other=float("-inf"), cache_modifier=".cg")
    sums = tl.load(chunks.tiles + at * (CHUNK // TILE) + tile, mask=mask, other=0.0, cache_modifier=".cg")
    return sums, tops


@triton.jit
def cumulative(masses, TILES: tl.constexpr):
    """Return the inputs of `draw` from the tiles: cumulative masses, the total, and the last tile that has mass."""
    sums = tl.cumsum(masses, axis=0)
    return sums, tl.max(sums, axis=0), tl.max(tl.where(masses > 0.0, tl.arange(0, TILES), 0), axis=0)


@triton.jit
def draw(tiles, u, target, row, limit, hole, top, scale, vocabulary, TILES: tl.constexpr):
    """Tokens by inverse CDF at the numbers `u`, never `hole`.

    `limit` is None, or the threshold of the tokens that `tiles` weigh: the lowest logit and its last id.
    """
    tile = tl.arange(0, TILES)
    lane = tl.arange(0, TILE)
    sums, mass, last = tiles
    aim = u * mass
    is_before = sums[None, :] <= aim[:, None]
    found = tl.minimum(tl.sum(is_before.to(tl.int32), axis=1), last)
    rest = aim - tl.max(tl.where(tile[None, :] < found[:, None], sums[None, :], 0.0), axis=1)
    ids = found[:, None] * TILE + lane[None, :]
    x = load_row(target, row, ids, ids < vocabulary)
    if limit is not None:
        x = kept(x, ids, limit[0], limit[1])
    weight = tl.where(ids == hole, 0.0, weights_of(x, top, scale))
    sums = tl.cumsum(weight.to(tl.float64), axis=1)
    last = tl.max(tl.where(weight > 0.0, lane[None, :], 0), axis=1)
    at = tl.minimum(tl.sum((sums <= rest[:, None]).to(tl.int32), axis=1), last)
    return (found * TILE + at).to(tl.int64)


@triton.jit
def trial_numbers(seed, pos, step, trials):
    """Numbers of the inverse CDF, float64, and of the acceptance test of trials."""
    w0, w1, w2, _ = draw_words(seed, pos, step, INVERSE, trials)
    bits = (w0.to(tl.int64) << 20) | (w1.to(tl.int64) >> 12)
    u = (bits.to(tl.float64) + 0.5) * 2.220446049250313e-16
    return u, (w2.to(tl.float64) + 0.5) * 2.3283064365386963e-10


@triton.jit
def residual_block(target, draft, row, state, step, begin, top, total, draft_top, draft_total, scale, vocabulary):
    """max(p - q, 0) of a block of tokens, float64."""
    ids = begin + tl.arange(0, SUM_BLOCK)
    mask = ids < vocabulary
    x = load_kept(target, row, ids, mask)
    start = draft.logits + state * draft.state_stride + step.to(tl.int64) * draft.step_stride
    y = load_logits(start, draft.id_stride, ids, mask)
    q = tl.where(draft_total > 0.0, weights_of(y, draft_top, scale) / tl.maximum(draft_total, 1e-38), 0.0)
    return tl.maximum((weights_of(x, top, scale) / total).to(tl.float64) - q.to(tl.float64), 0.0)


@triton.jit
def probability_of_draft(draft, state, step, tokens, draft_top, draft_total, scale, vocabulary):
    """Probabilities that a draft's row gives to tokens."""
    start = draft.logits + state * draft.state_stride + step.to(tl.int64) * draft.step_stride
    y = load_logits(start, draft.id_stride, tokens, tokens < vocabulary)
    # A constant below the smallest normal float32 would turn the expression into float64.
    return tl.where(draft_total > 0.0, weights_of(y, draft_top, scale) / tl.maximum(draft_total, 2e-38), 0.0)


@triton.jit
def draw_sum(u, target, draft, row, state, step, top, total, draft_top, draft_total, scale, vocabulary):
    """Return a token of norm(max(p - q, 0)) by inverse CDF at `u`, -1 if nothing is left."""
    token = tl.full((), -1, tl.int64)
    mass = tl.zeros((), tl.float64)
    for begin in range(0, vocabulary, SUM_BLOCK):
        mass += tl.sum(
            residual_block(
                target, draft, row, state, step, begin, top, total, draft_top, draft_total, scale, vocabulary
            ),
            axis=0,
        )
    if mass > 0.0:
        before = tl.zeros((), tl.float64)
        for begin in range(0, vocabulary, SUM_BLOCK):
            left = residual_block(
                target, draft, row, state, step, begin, top, total, draft_top, draft_total, scale, vocabulary
            )
            if before <= u * mass:
                ids = tl.arange(0, SUM_BLOCK)
                sums = before + tl.cumsum(left, axis=0)
                last = tl.max(tl.where(left > 0.0, ids, -1), axis=0)
                at = tl.minimum(tl.sum((sums <= u * mass).to(tl.int32), axis=0), last)
                token = tl.where(last >= 0, begin + at.to(tl.int64), token)
            before += tl.sum(left, axis=0)
    return token


@triton.jit
def draw_residual(
    tiles,
    target,
    draft,
    row,
    state,
    seed,
    pos,
    step,
    top,
    total,
    draft_top,
    draft_total,
    scale,
    vocabulary,
    TILES: tl.constexpr,
    CANDIDATES: tl.constexpr,
):
    """Return a token of norm(max(p - q, 0)): the first candidate from p that passes 1 - q / p, else from the sum."""
    lane = tl.arange(0, CANDIDATES)
    token = tl.full((), -1, tl.int64)
    turn = tl.zeros((), tl.int32)
    while (token < 0) & (turn < TRIALS // CANDIDATES):
        u, v = trial_numbers(seed, pos, step, turn * CANDIDATES + lane)
        candidates = draw(tiles, u, target, row, None, -1, top, scale, vocabulary, TILES)
        # A second load, beside the draft's logit, costs less than picking the weight out of its tile.
        x = load_row(target, row, candidates, candidates < vocabulary)
        q = probability_of_draft(draft, state, step, candidates, draft_top, draft_total, scale, vocabulary)
        p = weights_of(x, top, scale) / total
        passes = v * p < p - q
        chosen = tl.min(tl.where(passes, lane, CANDIDATES), axis=0)
        token = tl.max(tl.where(lane == chosen, candidates, -1), axis=0)
        turn += 1
    if token < 0:
        numbers, _v = trial_numbers(seed, pos, step, TRIALS + tl.arange(0, 1))
        token = draw_sum(
            tl.max(numbers, axis=0),
            target,
            draft,
            row,
            state,
            step,
            top,
            total,
            draft_top,
            draft_total,
            scale,
            vocabulary,
        )
        if token < 0:
            token = tl.max(draw(tiles, numbers, target, row, None, -1, top, scale, vocabulary, TILES), axis=0)
    return token


@triton.jit
def load_tile_of(target, row, limit, token, end):
    """Ids and logits of the tile of a token, [TILE]; minus infinity from the id `end` on."""
    ids = token // TILE * TILE + tl.arange(0, TILE)
    x = load_row(target, row, ids, ids < end)
    if limit is not None:
        x = kept(x, ids, limit[0], limit[1])
    return ids, x


@triton.jit
def without_draft(masses, tile, rejected, is_residual, top, scale, TILES: tl.constexpr):
    """Return the masses of the tiles without a rejected draft, and that draft; if nothing else has mass, all and -1.

    `tile` is what ``load_tile_of`` returned for the draft. Without a residual nothing changes, and -1 is returned.
    """
    ids, x = tile
    left = tl.sum(tl.where(ids == rejected, 0.0, weights_of(x, top, scale)), axis=0)
    others = tl.where(tl.arange(0, TILES) == rejected // TILE, left.to(tl.float64), masses)
    has_hole = is_residual & (tl.max(others, axis=0) > 0.0)
    return tl.where(has_hole, others, masses), tl.where(has_hole, rejected, -1)


@triton.jit
def store_results(out, requests, request, first, drafts, n, token, COLUMNS: tl.constexpr):
    """Write the results of a request with `n` accepted drafts and the token after them."""
    step = tl.arange(0, COLUMNS)
    drafted = tl.load(requests.draft_sampled + first + step + 1, mask=step < drafts, other=-1).to(tl.int64)
    value = tl.where(step < n, drafted, tl.where(step == n, token, -1))
    sampled = out.sampled + request * out.sampled_stride_0 + step.to(tl.int64) * out.sampled_stride_1
    tl.store(sampled, value, mask=step < requests.columns)
    tl.store(out.num_sampled + request * out.num_sampled_stride, n + 1)
    tl.store(out.num_rejected + request * out.num_rejected_stride, drafts - n)
    tl.store(out.next_token + request * out.next_token_stride, token)
    tl.store(out.next_row + request * out.next_row_stride, first + n)


@triton.jit
def finish(
    out,
    target,
    draft,
    requests,
    request,
    state,
    first,
    drafts,
    n,
    argmax,
    top,
    total,
    draft_top,
    draft_total,
    tiles,
    vocabulary,
    KIND: tl.constexpr,
    COLUMNS: tl.constexpr,
    TILES: tl.constexpr,
    CANDIDATES: tl.constexpr,
):
    """Write the results of a request with `n` accepted drafts: draw its token from row `n`, of which all is known."""
    scale, is_greedy = scale_of(requests, state, KIND)
    step = tl.arange(0, COLUMNS)
    drafted = tl.load(requests.draft_sampled + first + step + 1, mask=step < drafts, other=-1).to(tl.int64)
    row = first + n
    token = argmax
    if KIND != GREEDY:  # noqa: SIM102
        if not is_greedy:
            seed = tl.load(requests.seed + state)
            pos = tl.load(requests.pos + row)
            rejected = tl.max(tl.where(step == n, drafted, -1), axis=0)
            is_residual = (n < drafts) & (rejected >= 0) & (rejected < vocabulary)
            if KIND == ONE_HOT:
                # Issue this load first: the code below waits for the tiles.
                tile = load_tile_of(target, row, None, rejected, tl.where(is_residual, vocabulary, 0))
            u, _v = trial_numbers(seed, pos, n, tl.arange(0, 1))
            sums, tops = tiles
            masses = (sums * weights_of(tops, top, scale)).to(tl.float64)
            hole = tl.full((), -1, tl.int64)
            if KIND == ONE_HOT:
                masses, hole = without_draft(masses, tile, rejected, is_residual, top, scale, TILES)
            if KIND == DRAFT:
                is_residual = is_residual & (n < draft.steps) & (total > 0.0)
                token = tl.full((), -1, tl.int64)
                if is_residual:
                    token = draw_residual(
                        cumulative(masses, TILES),
                        target,
                        draft,
                        row,
                        state,
                        seed,
                        pos,
                        n,
                        top,
                        total,
                        draft_top,
                        draft_total,
                        scale,
                        vocabulary,
                        TILES,
                        CANDIDATES,
                    )
            if (KIND == ONE_HOT) | (not is_residual):
                tokens = draw(cumulative(masses, TILES), u, target, row, None, hole, top, scale, vocabulary, TILES)
                token = tl.where(total > 0.0, tl.max(tokens, axis=0), 0)
    store_results(out, requests, request, first, drafts, n, token, COLUMNS)


@triton.jit
def finish_row(
    out,
    chunks,
    target,
    draft,
    requests,
    request,
    state,
    first,
    drafts,
    n,
    vocabulary,
    KIND: tl.constexpr,
    COLUMNS: tl.constexpr,
    SPLITS: tl.constexpr,
    TILES: tl.constexpr,
):
    """Write the results of a request with `n` accepted drafts, without limits."""
    # Issue these loads first: `decide` waits for the row's chunks.
    tiles = load_tiles(chunks, request * requests.columns + n, TILES)
    _margins, _tokens, argmaxes, tops, totals, draft_tops, draft_totals = decide(
        chunks, target, draft, requests, request, state, first, drafts, n, vocabulary, KIND, 1, SPLITS
    )
    finish(
        out,
        target,
        draft,
        requests,
        request,
        state,
        first,
        drafts,
        n,
        of_step(argmaxes, 0, 1),
        of_step(tops, 0, 1),
        of_step(totals, 0, 1),
        of_step(draft_tops, 0, 1),
        of_step(draft_totals, 0, 1),
        tiles,
        vocabulary,
        KIND,
        COLUMNS,
        TILES,
        16,
    )

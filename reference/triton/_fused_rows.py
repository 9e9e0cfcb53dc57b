"""Rows of the fused family: their chunks, each read once, and the decision on a request's drafts from them."""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from ._logits import load_logits
from ._threshold_gather import TILE
from ._threshold_search import CHUNK
from .philox import log_acceptance_number

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)

GREEDY: tl.constexpr = tl.constexpr(0)
ONE_HOT: tl.constexpr = tl.constexpr(1)
DRAFT: tl.constexpr = tl.constexpr(2)


class FusedTarget(NamedTuple):
    """Target logits [rows, V], and with top-k or top-p the thresholds of the rows that need them."""

    logits: Any
    row_stride: Any
    id_stride: Any
    nth_logit: Any = None
    last_id: Any = None


class RequestTensors(NamedTuple):
    """The requests of a batch and, where they sample, the fields of their states."""

    draft_sampled: Any
    cu_num_logits: Any
    idx_mapping: Any
    pos: Any
    temperature: Any
    seed: Any
    normaliser: Any
    normaliser_stride_0: Any
    normaliser_stride_1: Any
    count: Any
    columns: Any


class Chunks(NamedTuple):
    """Partial results of every row's chunks: [requests * columns, splits], tiles [.., splits * tiles of a chunk]."""

    top: Any
    total: Any
    best: Any
    tiles: Any
    draft_top: Any
    draft_total: Any
    splits: Any


@triton.jit
def weights_of(x, top, scale):
    """2^((x - top) * scale); equal logits weigh 1, also infinite ones, and minus infinity weighs nothing."""
    equal = tl.where(top == float("-inf"), 0.0, 1.0)
    return tl.where(x == top, equal, tl.exp2((x - tl.where(top == float("-inf"), 0.0, top)) * scale))


@triton.jit
def chunk_weights(x, top, scale):
    """Weights of a chunk with the maximum `top`, as ``weights_of`` gives them."""
    if (top > float("-inf")) & (top < float("inf")):  # noqa: SIM108 -- one side alone is computed
        weights = tl.exp2((x - top) * scale)
    else:
        weights = weights_of(x, top, scale)
    return weights


@triton.jit
def scale_of(requests, state, KIND: tl.constexpr):
    """log2(e) / temperature, and whether the request is greedy."""
    temperature = tl.zeros((), tl.float32)
    if KIND != GREEDY:
        temperature = tl.load(requests.temperature + state)
    is_greedy = temperature == 0.0
    # A constant as the dividend would make the interpreter take the quotient for a constant.
    return (tl.zeros((), tl.float32) + LOG2E) / tl.where(is_greedy, 1.0, temperature), is_greedy


@triton.jit
def kept(x, ids, nth_logit, last_id):
    """Replace logits below a threshold by minus infinity."""
    return tl.where((x > nth_logit) | ((x == nth_logit) & (ids <= last_id)), x, float("-inf"))


@triton.jit
def request_of(requests, request):
    """State, first row and drafts of a request."""
    state = tl.load(requests.idx_mapping + request).to(tl.int64)
    first = tl.load(requests.cu_num_logits + request).to(tl.int64)
    return state, first, tl.load(requests.cu_num_logits + request + 1).to(tl.int64) - first - 1


@triton.jit
def load_row(target, row, ids, mask):
    """Load logits of a row as float32, minus infinity for NaN and masked lanes."""
    return load_logits(target.logits + row * target.row_stride, target.id_stride, ids, mask)


@triton.jit
def load_kept(target, row, ids, mask):
    """Load logits of a row as float32, minus infinity for NaN, masked lanes and tokens that top-k and top-p drop."""
    x = load_row(target, row, ids, mask)
    if target.nth_logit is not None:
        x = kept(x, ids, tl.load(target.nth_logit + row), tl.load(target.last_id + row))
    return x


@triton.jit
def load_chunk(target, row, split, vocabulary, GROUPED: tl.constexpr):
    """Load one chunk of a target row, [CHUNK], without limits; `GROUPED` if groups of its tokens are summed."""
    ids = split * CHUNK + tl.arange(0, CHUNK)
    if GROUPED:
        # Load 16-bit logits four per thread, as float32: with eight, a group would span more threads.
        ids = tl.max_contiguous(ids, 4)
    return load_logits(target.logits + row * target.row_stride, target.id_stride, ids, ids < vocabulary)


@triton.jit
def scan_target(chunks, slot, split, chunk, scale, is_greedy):
    """Store the statistics of one chunk of a target row."""
    at = slot * chunks.splits + split
    x = tl.reshape(chunk, (CHUNK // TILE, TILE))
    top = tl.max(tl.max(x, axis=1), axis=0)
    tl.store(chunks.top + at, top)
    if is_greedy:
        tl.store(chunks.best + at, tl.min(tl.where(chunk == top, tl.arange(0, CHUNK), CHUNK), axis=0))
    else:
        tiles = tl.sum(chunk_weights(x, top, scale), axis=1)
        tl.store(chunks.tiles + at * (CHUNK // TILE) + tl.arange(0, CHUNK // TILE), tiles)
        tl.store(chunks.total + at, tl.sum(tiles, axis=0))


@triton.jit
def scan_draft(chunks, draft, slot, state, step, split, scale, vocabulary):
    """Read one chunk of a draft's row and store its statistics."""
    at = slot * chunks.splits + split
    ids = split * CHUNK + tl.arange(0, CHUNK)
    start = draft.logits + state * draft.state_stride + step.to(tl.int64) * draft.step_stride
    y = load_logits(start, draft.id_stride, ids, ids < vocabulary)
    top = tl.max(y, axis=0)
    tl.store(chunks.draft_top + at, top)
    tl.store(chunks.draft_total + at, tl.sum(chunk_weights(y, top, scale), axis=0))


@triton.jit
def combine(tops, totals, scale):
    """Top and total of rows, [N], from those of their chunks, [N, splits]."""
    top = tl.max(tops, axis=1)
    return top, tl.sum(totals * weights_of(tops, top[:, None], scale), axis=1)


@triton.jit
def log2_prob(logit, top, total, scale):
    """log2 of a probability; minus infinity where there is none."""
    log = tl.where(logit == top, 0.0, (logit - tl.where(top == float("-inf"), 0.0, top)) * scale)
    has_mass = (logit > float("-inf")) & (total > 0.0)
    return tl.where(has_mass, log - tl.log2(tl.maximum(total, 1e-38)), float("-inf"))


@triton.jit
def decide(
    chunks,
    target,
    draft,
    requests,
    request,
    state,
    first,
    drafts,
    start,
    vocabulary,
    KIND: tl.constexpr,
    STEPS: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """Decide on the drafts of the steps from `start`: margin, draft, argmax, top and total of both rows, [STEPS].

    The margin of an accepted draft is above 0. Of a sampled request it is log2 of the draft's probability over what
    that must exceed.
    """
    scale, is_greedy = scale_of(requests, state, KIND)
    step = start + tl.arange(0, STEPS)
    split = tl.arange(0, SPLITS)
    exists = step <= drafts
    at = (request * requests.columns + step)[:, None] * chunks.splits + split[None, :]
    mask = exists[:, None] & (split < chunks.splits)[None, :]
    tops = tl.load(chunks.top + at, mask=mask, other=float("-inf"), cache_modifier=".cg")
    token = tl.load(requests.draft_sampled + first + step + 1, mask=step < drafts, other=-1).to(tl.int64)
    top = tl.max(tops, axis=1)
    total = tl.zeros((STEPS,), tl.float32)
    draft_top = tl.zeros((STEPS,), tl.float32)
    draft_total = tl.zeros((STEPS,), tl.float32)
    if is_greedy:
        best = tl.load(chunks.best + at, mask=mask, other=0, cache_modifier=".cg")
        ids = tl.where(tops == top[:, None], split[None, :] * CHUNK + best, 2**31 - 1)
        argmax = tl.min(ids, axis=1).to(tl.int64)
        margin = tl.where((step < drafts) & (token == argmax), 1.0, float("-inf"))
    else:
        argmax = tl.zeros((STEPS,), tl.int64)
        totals = tl.load(chunks.total + at, mask=mask, other=0.0, cache_modifier=".cg")
        top, total = combine(tops, totals, scale)
        accepted = (step < drafts) & (token >= 0) & (token < vocabulary)
        margin = tl.where(accepted, 1.0, float("-inf"))
        if KIND == DRAFT:
            accepted = accepted & (step < draft.steps)
        if KIND != GREEDY:
            logit = load_logits(target.logits + (first + step) * target.row_stride, target.id_stride, token, accepted)
            if target.nth_logit is not None:
                nth = tl.load(target.nth_logit + first + step, mask=accepted, other=0.0)
                logit = kept(logit, token, nth, tl.load(target.last_id + first + step, mask=accepted, other=0))
            log_q = tl.zeros((STEPS,), tl.float32)
            if KIND == DRAFT:
                if requests.normaliser is None:
                    tops = tl.load(
                        chunks.draft_top + at, mask=mask & accepted[:, None], other=float("-inf"), cache_modifier=".cg"
                    )
                    totals = tl.load(
                        chunks.draft_total + at, mask=mask & accepted[:, None], other=0.0, cache_modifier=".cg"
                    )
                    draft_top, draft_total = combine(tops, totals, scale)
                else:
                    at_step = state * requests.normaliser_stride_0 + step.to(tl.int64) * requests.normaliser_stride_1
                    log_sum = tl.load(requests.normaliser + at_step, mask=accepted, other=0.0)
                    draft_total = tl.where(log_sum > float("-inf"), 1.0, 0.0)
                    draft_top = log_sum * (LOG2E / scale)
                row = draft.logits + state * draft.state_stride + step.to(tl.int64) * draft.step_stride
                log_q = log2_prob(load_logits(row, draft.id_stride, token, accepted), draft_top, draft_total, scale)
            pos = tl.load(requests.pos + first + step, mask=exists, other=0)
            log2_u = log_acceptance_number(tl.load(requests.seed + state), pos, step) * LOG2E
            log_p = log2_prob(logit, top, total, scale)
            # Rounding the difference must not decide, and minus infinity less itself is no number.
            need = log2_u + log_q
            margin = tl.maximum((log_p - need).to(tl.float32), 1e-30)
            margin = tl.where(log_p > need, margin, tl.minimum((log_p - need).to(tl.float32), 0.0))
            margin = tl.where(accepted & (log_p > float("-inf")), margin, float("-inf"))
    return margin, token, argmax, top, total, draft_top, draft_total

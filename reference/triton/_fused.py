"""The kernels of the fused family: every logit is read once, and the last program of a request writes its tokens.

A row is cut into chunks, one program each. A program leaves the maximum of its chunk, and where the request samples the
sum of exponentials of every tile of 256 tokens relative to that maximum. It then takes a ticket of its request; the
program with the last ticket combines the chunks of all rows, verifies the drafts and draws the token: it picks a tile
by the cumulative masses in float64, and reads that tile alone. So nothing of size V is stored and there is one launch.

Large batches take two launches. The last program of a row decides on the row's draft and publishes a rejection.
Programs run position by position, so those of later positions see it and read nothing: a row after a rejected draft
costs no bandwidth once a position's rows fill the device. Results do not depend on what was seen. The second launch
draws: its registers would keep programs that read off the device.

Tickets return to zero by the program that took the last one, so a call needs no memset. Calls share their scratch: on
one device they must not overlap on several streams.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ._logits import load_logits
from ._request_state import DraftLogits, TargetLogits
from .philox import acceptance_number, draw_words

CHUNK: tl.constexpr = tl.constexpr(4096)
TILE: tl.constexpr = tl.constexpr(256)
TRIALS: tl.constexpr = tl.constexpr(64)
SUM_BLOCK: tl.constexpr = tl.constexpr(1024)
INVERSE: tl.constexpr = tl.constexpr(3)
LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)
UNREJECTED: tl.constexpr = tl.constexpr(2**30)

GREEDY: tl.constexpr = tl.constexpr(0)
ONE_HOT: tl.constexpr = tl.constexpr(1)
DRAFT: tl.constexpr = tl.constexpr(2)

REGISTERS = (80, 96, 128)
"""Maximum registers per thread, by kind, of the kernel that both reads and draws."""
SKIP_BYTES = 32 << 20
"""Bytes of target rows from which skipping pays: fewer are in flight before the first row is decided."""


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


class RequestTensors(NamedTuple):
    """The requests of a batch and, where they sample, what their states hold."""

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


class Tickets(NamedTuple):
    """Programs that are done, by request and by row, and the first rejected step of each request."""

    request: Any
    row: Any
    rejected: Any


@triton.jit
def weights_of(x, top, scale):
    """2^((x - top) * scale); equal logits weigh 1, also infinite ones, and minus infinity weighs nothing."""
    equal = tl.where(top == float("-inf"), 0.0, 1.0)
    return tl.where(x == top, equal, tl.exp2((x - tl.where(top == float("-inf"), 0.0, top)) * scale))


@triton.jit
def scale_of(requests, state, KIND: tl.constexpr):
    """log2(e) / temperature, and whether the request is greedy."""
    temperature = tl.zeros((), tl.float32)
    if KIND != GREEDY:
        temperature = tl.load(requests.temperature + state)
    is_greedy = temperature == 0.0
    return LOG2E / tl.where(is_greedy, 1.0, temperature), is_greedy


@triton.jit
def scan_chunk(chunks, target, draft, requests, slot, row, state, step, drafts, split, vocabulary, KIND: tl.constexpr):
    """Read one chunk of a row, and of its draft's, and leave what there is to know of it."""
    scale, is_greedy = scale_of(requests, state, KIND)
    lane = tl.arange(0, CHUNK // TILE)[:, None] * TILE + tl.arange(0, TILE)[None, :]
    ids = split * CHUNK + lane
    mask = ids < vocabulary
    at = slot * chunks.splits + split
    x = load_logits(target.logits + row * target.row_stride, target.id_stride, ids, mask)
    top = tl.max(tl.max(x, axis=1), axis=0)
    tl.store(chunks.top + at, top)
    if is_greedy:
        tl.store(chunks.best + at, tl.min(tl.min(tl.where(x == top, lane, CHUNK), axis=1), axis=0))
    else:
        tiles = tl.sum(weights_of(x, top, scale), axis=1)
        tl.store(chunks.tiles + at * (CHUNK // TILE) + tl.arange(0, CHUNK // TILE), tiles)
        tl.store(chunks.total + at, tl.sum(tiles, axis=0))
        if KIND == DRAFT and requests.normaliser is None:  # noqa: SIM102 -- decided when the kernel is compiled
            if (step < drafts) & (step < draft.steps):
                start = draft.logits + state * draft.state_stride + step.to(tl.int64) * draft.step_stride
                y = load_logits(start, draft.id_stride, ids, mask)
                top = tl.max(tl.max(y, axis=1), axis=0)
                tl.store(chunks.draft_top + at, top)
                tl.store(chunks.draft_total + at, tl.sum(tl.sum(weights_of(y, top, scale), axis=1), axis=0))


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
    """Decide on the drafts of the steps from `start`: accepted, draft, argmax, top and total of both rows, [STEPS]."""
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
        accepted = (step < drafts) & (token == argmax)
    else:
        argmax = tl.zeros((STEPS,), tl.int64)
        totals = tl.load(chunks.total + at, mask=mask, other=0.0, cache_modifier=".cg")
        top, total = combine(tops, totals, scale)
        accepted = (step < drafts) & (token >= 0) & (token < vocabulary)
        if KIND == DRAFT:
            accepted = accepted & (step < draft.steps)
        if KIND != GREEDY:
            logit = load_logits(target.logits + (first + step) * target.row_stride, target.id_stride, token, accepted)
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
            u = acceptance_number(tl.load(requests.seed + state), pos, step).to(tl.float32)
            accepted = accepted & (log2_prob(logit, top, total, scale) > tl.log2(u) + log_q)
    return accepted, token, argmax, top, total, draft_top, draft_total


@triton.jit
def of_step(values, step, at):
    """Return the entry of one step of a vector."""
    return tl.max(tl.where(step == at, values, float("-inf")), axis=0)


@triton.jit
def tile_masses(chunks, slot, top, scale, TILES: tl.constexpr):
    """Return the mass of every tile of a row relative to its top, [TILES] float64."""
    tile = tl.arange(0, TILES)
    mask = tile < chunks.splits * (CHUNK // TILE)
    at = slot * chunks.splits
    chunk_top = tl.load(chunks.top + at + tile // (CHUNK // TILE), mask=mask, other=float("-inf"), cache_modifier=".cg")
    sums = tl.load(chunks.tiles + at * (CHUNK // TILE) + tile, mask=mask, other=0.0, cache_modifier=".cg")
    return (sums * weights_of(chunk_top, top, scale)).to(tl.float64)


@triton.jit
def cumulative(masses, TILES: tl.constexpr):
    """Return what `draw` needs of the tiles: cumulative masses, the total, and the last tile that has mass."""
    sums = tl.cumsum(masses, axis=0)
    return sums, tl.max(sums, axis=0), tl.max(tl.where(masses > 0.0, tl.arange(0, TILES), 0), axis=0)


@triton.jit
def draw(tiles, u, target, row, hole, top, scale, vocabulary, TILES: tl.constexpr):
    """Tokens by inverse CDF at the numbers `u`, never `hole`, and their weights."""
    tile = tl.arange(0, TILES)
    lane = tl.arange(0, TILE)
    sums, mass, last = tiles
    aim = u * mass
    is_before = sums[None, :] <= aim[:, None]
    found = tl.minimum(tl.sum(is_before.to(tl.int32), axis=1), last)
    rest = aim - tl.max(tl.where(tile[None, :] < found[:, None], sums[None, :], 0.0), axis=1)
    ids = found[:, None] * TILE + lane[None, :]
    x = load_logits(target.logits + row * target.row_stride, target.id_stride, ids, ids < vocabulary)
    weight = tl.where(ids == hole, 0.0, weights_of(x, top, scale))
    sums = tl.cumsum(weight.to(tl.float64), axis=1)
    last = tl.max(tl.where(weight > 0.0, lane[None, :], 0), axis=1)
    at = tl.minimum(tl.sum((sums <= rest[:, None]).to(tl.int32), axis=1), last)
    return (found * TILE + at).to(tl.int64), tl.sum(tl.where(lane[None, :] == at[:, None], weight, 0.0), axis=1)


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
    x = load_logits(target.logits + row * target.row_stride, target.id_stride, ids, mask)
    start = draft.logits + state * draft.state_stride + step.to(tl.int64) * draft.step_stride
    y = load_logits(start, draft.id_stride, ids, mask)
    q = tl.where(draft_total > 0.0, weights_of(y, draft_top, scale) / tl.maximum(draft_total, 1e-38), 0.0)
    return tl.maximum((weights_of(x, top, scale) / total).to(tl.float64) - q.to(tl.float64), 0.0)


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
    start = draft.logits + state * draft.state_stride + step.to(tl.int64) * draft.step_stride
    token = tl.full((), -1, tl.int64)
    turn = tl.zeros((), tl.int32)
    while (token < 0) & (turn < TRIALS // CANDIDATES):
        u, v = trial_numbers(seed, pos, step, turn * CANDIDATES + lane)
        candidates, weight = draw(tiles, u, target, row, -1, top, scale, vocabulary, TILES)
        y = load_logits(start, draft.id_stride, candidates, candidates < vocabulary)
        q = tl.where(draft_total > 0.0, weights_of(y, draft_top, scale) / tl.maximum(draft_total, 1e-38), 0.0)
        p = weight / total
        passes = v * p < p - q
        chosen = tl.min(tl.where(passes, lane, CANDIDATES), axis=0)
        token = tl.max(tl.where(lane == chosen, candidates, -1), axis=0)
        turn += 1
    if token < 0:
        numbers, _v = trial_numbers(seed, pos, step, TRIALS + tl.arange(0, 1))
        u = tl.max(numbers, axis=0)
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
        else:
            whole, _weight = draw(tiles, numbers, target, row, -1, top, scale, vocabulary, TILES)
            token = tl.max(whole, axis=0)
    return token


@triton.jit
def finish(
    out,
    chunks,
    target,
    draft,
    requests,
    request,
    state,
    first,
    drafts,
    vocabulary,
    KIND: tl.constexpr,
    COLUMNS: tl.constexpr,
    SPLITS: tl.constexpr,
    TILES: tl.constexpr,
    CANDIDATES: tl.constexpr,
):
    """Verify a request from the chunks of its rows and write its results."""
    scale, is_greedy = scale_of(requests, state, KIND)
    step = tl.arange(0, COLUMNS)
    accepted, drafted, argmax, tops, totals, draft_tops, draft_totals = decide(
        chunks, target, draft, requests, request, state, first, drafts, 0, vocabulary, KIND, COLUMNS, SPLITS
    )
    n = tl.min(tl.where(accepted, COLUMNS, tl.minimum(step, drafts)), axis=0).to(tl.int64)
    row = first + n
    token = tl.max(tl.where(step == n, argmax, 0), axis=0)
    if KIND != GREEDY:  # noqa: SIM102
        if not is_greedy:
            top = of_step(tops, step, n)
            total = of_step(totals, step, n)
            seed = tl.load(requests.seed + state)
            pos = tl.load(requests.pos + row)
            rejected = tl.max(tl.where(step == n, drafted, -1), axis=0)
            is_residual = (n < drafts) & (rejected >= 0) & (rejected < vocabulary)
            masses = tile_masses(chunks, request * requests.columns + n, top, scale, TILES)
            hole = tl.full((), -1, tl.int64)
            if KIND == ONE_HOT:  # noqa: SIM102
                if is_residual:
                    tile = rejected // TILE
                    ids = tile * TILE + tl.arange(0, TILE)
                    x = load_logits(target.logits + row * target.row_stride, target.id_stride, ids, ids < vocabulary)
                    left = tl.sum(tl.where(ids == rejected, 0.0, weights_of(x, top, scale)), axis=0)
                    others = tl.where(tl.arange(0, TILES) == tile, left.to(tl.float64), masses)
                    if tl.max(others, axis=0) > 0.0:
                        masses = others
                        hole = rejected
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
                        of_step(draft_tops, step, n),
                        of_step(draft_totals, step, n),
                        scale,
                        vocabulary,
                        TILES,
                        CANDIDATES,
                    )
            if (KIND == ONE_HOT) | (not is_residual):
                u, _v = trial_numbers(seed, pos, n, tl.arange(0, 1))
                tiles = cumulative(masses, TILES)
                tokens, _weight = draw(tiles, u, target, row, hole, top, scale, vocabulary, TILES)
                token = tl.where(total > 0.0, tl.max(tokens, axis=0), 0)
    value = tl.where(step < n, drafted, tl.where(step == n, token, -1))
    sampled = out.sampled + request * out.sampled_stride_0 + step.to(tl.int64) * out.sampled_stride_1
    tl.store(sampled, value, mask=step < requests.columns)
    tl.store(out.num_sampled + request * out.num_sampled_stride, n + 1)
    tl.store(out.num_rejected + request * out.num_rejected_stride, drafts - n)
    tl.store(out.next_token + request * out.next_token_stride, token)
    tl.store(out.next_row + request * out.next_row_stride, row)


@triton.jit
def request_of(requests, request):
    """State, first row and drafts of a request."""
    state = tl.load(requests.idx_mapping + request).to(tl.int64)
    first = tl.load(requests.cu_num_logits + request).to(tl.int64)
    return state, first, tl.load(requests.cu_num_logits + request + 1).to(tl.int64) - first - 1


@triton.jit
def place_of(program, chunks, requests):
    """Step, request and chunk of a program: later steps come last."""
    request = ((program // chunks.splits) % requests.count).to(tl.int64)
    return (program // chunks.splits) // requests.count, request, program % chunks.splits


@triton.jit
def _verify_kernel(
    out,
    chunks,
    tickets,
    target,
    draft,
    requests,
    vocabulary,
    KIND: tl.constexpr,
    COLUMNS: tl.constexpr,
    SPLITS: tl.constexpr,
    TILES: tl.constexpr,
):
    step, request, split = place_of(tl.program_id(0), chunks, requests)
    state, first, drafts = request_of(requests, request)
    if (state < 0) | (step > drafts):
        return
    slot = request * requests.columns + step
    scan_chunk(chunks, target, draft, requests, slot, first + step, state, step, drafts, split, vocabulary, KIND)
    # Every thread's stores come before the ticket, and the last program's loads after it.
    tl.debug_barrier()
    if tl.atomic_add(tickets.request + request, 1, sem="acq_rel") == (drafts + 1) * chunks.splits - 1:
        tl.debug_barrier()
        finish(
            out,
            chunks,
            target,
            draft,
            requests,
            request,
            state,
            first,
            drafts,
            vocabulary,
            KIND,
            COLUMNS,
            SPLITS,
            TILES,
            8,
        )
        tl.store(tickets.request + request, 0)


@triton.jit
def _scan_kernel(chunks, tickets, target, draft, requests, vocabulary, KIND: tl.constexpr, SPLITS: tl.constexpr):
    step, request, split = place_of(tl.program_id(0), chunks, requests)
    # Nothing here waits for another load.
    rejected = tl.load(tickets.rejected + request, volatile=True)
    state, first, drafts = request_of(requests, request)
    if (state < 0) | (step > drafts) | (rejected < step):
        return
    slot = request * requests.columns + step
    scan_chunk(chunks, target, draft, requests, slot, first + step, state, step, drafts, split, vocabulary, KIND)
    if step < drafts:
        tl.debug_barrier()
        if tl.atomic_add(tickets.row + slot, 1, sem="acq_rel") == chunks.splits - 1:
            tl.debug_barrier()
            accepted, _a, _b, _c, _d, _e, _f = decide(
                chunks, target, draft, requests, request, state, first, drafts, step, vocabulary, KIND, 1, SPLITS
            )
            if tl.max(accepted.to(tl.int32), axis=0) == 0:
                tl.atomic_min(tickets.rejected + request, step, sem="relaxed")


@triton.jit
def _finish_kernel(
    out,
    chunks,
    tickets,
    target,
    draft,
    requests,
    vocabulary,
    KIND: tl.constexpr,
    COLUMNS: tl.constexpr,
    SPLITS: tl.constexpr,
    TILES: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    state, first, drafts = request_of(requests, request)
    tl.store(tickets.rejected + request, UNREJECTED)
    steps = tl.arange(0, COLUMNS)
    tl.store(tickets.row + request * requests.columns + steps, 0, mask=steps < requests.columns)
    if (state < 0) | (drafts < 0):
        return
    finish(
        out,
        chunks,
        target,
        draft,
        requests,
        request,
        state,
        first,
        drafts,
        vocabulary,
        KIND,
        COLUMNS,
        SPLITS,
        TILES,
        16,
    )


def _make_scratch(device: Any, rows: int, splits: int) -> tuple[Any, ...]:
    floats = torch.empty((4, rows, splits), dtype=torch.float32, device=device)
    tiles = torch.empty((rows, splits * (CHUNK.value // TILE.value)), dtype=torch.float32, device=device)
    best = torch.empty((rows, splits), dtype=torch.int32, device=device)
    tickets = torch.zeros((2, rows), dtype=torch.int32, device=device)
    rejected = torch.full((rows,), UNREJECTED.value, dtype=torch.int32, device=device)
    return (*floats.unbind(), tiles, best, *tickets.unbind(), rejected)


_kept: dict[tuple[Any, int, int], tuple[Any, ...]] = {}


def _scratch(device: Any, rows: int, splits: int) -> tuple[Any, ...]:
    """Scratch of a device, made once per size: tickets start at zero, and every call leaves them so.

    A graph that is captured before the first call of its size gets scratch of its own, cleared by every replay.
    """
    rows = triton.next_power_of_2(rows)
    key = (device, rows, splits)
    if key not in _kept:
        made = _make_scratch(device, rows, splits)
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return made
        _kept[key] = made
    return _kept[key]


def outputs_of(sampled: Any, *per_request: Any) -> OutputTensors:
    return OutputTensors(sampled, *sampled.stride(), *(part for t in per_request for part in (t, t.stride(0))))


def requests_of(
    draft_sampled: Any,
    cu_num_logits: Any,
    idx_mapping: Any,
    columns: int,
    pos: Any = None,
    temperature: Any = None,
    seed: Any = None,
    normaliser: Any = None,
) -> RequestTensors:
    tensors = (draft_sampled, cu_num_logits, idx_mapping, pos, temperature, seed)
    stride_0, stride_1 = (0, 0) if normaliser is None else normaliser.stride()
    drafts, ends, states, positions, temperatures, seeds = (None if t is None else t.contiguous() for t in tensors)
    return RequestTensors(
        drafts,
        ends,
        states,
        positions,
        temperatures,
        seeds,
        normaliser,
        stride_0,
        stride_1,
        idx_mapping.shape[0],
        columns,
    )


def launch(
    out: OutputTensors, target: TargetLogits, draft: DraftLogits, requests: RequestTensors, vocabulary: int, kind: Any
) -> None:
    """Verify a batch in one launch."""
    if requests.count == 0:
        return
    device = target.logits.device
    splits = triton.cdiv(vocabulary, CHUNK.value)
    rows = requests.count * requests.columns
    top, total, draft_top, draft_total, tiles, best, request, row, rejected = _scratch(device, rows, splits)
    chunks = Chunks(top, total, best, tiles, draft_top, draft_total, splits)
    tickets = Tickets(request, row, rejected)
    padded = {
        "COLUMNS": triton.next_power_of_2(requests.columns),
        "SPLITS": triton.next_power_of_2(splits),
        "TILES": triton.next_power_of_2(splits * (CHUNK.value // TILE.value)),
    }
    read = (chunks, tickets, target, draft, requests, vocabulary, kind.value)
    if requests.columns == 1 or rows * vocabulary * target.logits.element_size() < SKIP_BYTES:
        _verify_kernel[(rows * splits,)](out, *read, **padded, num_warps=4, maxnreg=REGISTERS[kind.value])
        return
    _scan_kernel[(rows * splits,)](*read, SPLITS=padded["SPLITS"], num_warps=4)
    _finish_kernel[(requests.count,)](out, *read, **padded, num_warps=8)

"""The launches of the fused kernels that follow the scan of a batch with top-k or top-p.

1. candidates, in batches without top-k: draw the first few candidates of each request with top-p. Bounds of the weight
before them settle most of the requests (``_fused_candidates``).
2. weigh: add up the tokens before the candidates of all others, which settles most of these.
3. interval, gather, select: find the exact thresholds of all others, in general for one row each (``_thresholds``).
4. finish: verify their drafts and draw their tokens by these.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ._fused_candidates import (
    COLUMN,
    LINES,
    WEIGHED,
    bounds_before,
    candidate,
    draw_limited,
    list_candidates,
    settle,
    sums_before,
    total_of,
    weight_before,
)
from ._fused_draw import OutputTensors, accepted_of, finish_row, of_step, store_results
from ._fused_limits import groups_of, weight_of_last
from ._fused_rows import (
    DRAFT,
    ONE_HOT,
    Chunks,
    FusedTarget,
    RequestTensors,
    chunk_weights,
    decide,
    load_row,
    request_of,
    scale_of,
)
from ._fused_scratch import LimitScratch, Tickets, clear_tickets
from ._launches import launch as launch_kernel
from ._logit_keys import ACCEPTED, OPEN, REJECTED, KeyRows, limits
from ._request_state import DraftLogits
from ._threshold_search import CHUNK
from ._thresholds import MULTIPROCESSORS, find_thresholds

CANDIDATE_REGISTERS = 128
"""Maximum registers per thread of many programs that draw candidates, so that two share a multiprocessor."""
WEIGH_PROGRAMS = 2048
"""Programs of that pass beyond which each weighs several chunks."""
WEIGH_SPAN = 4
WEIGH_REGISTERS = 96
"""Maximum registers per thread of the pass that weighs the tokens before candidates, for five programs."""


@triton.jit
def decisions_of(tickets, requests, request, drafts, COLUMNS: tl.constexpr):
    """Return the scan's decisions on the drafts of a request, [COLUMNS]; rejected from the first such step on."""
    rejected = tl.load(tickets.rejected + request)
    steps = tl.arange(0, COLUMNS)
    is_known = steps < tl.minimum(rejected, drafts)
    return tl.load(tickets.decision + request * requests.columns + steps, mask=is_known, other=REJECTED)


@triton.jit
def _candidates_kernel(
    out,
    candidates,
    search,
    chunks,
    tickets,
    target,
    draft,
    requests,
    rows,
    vocabulary,
    KIND: tl.constexpr,
    COLUMNS: tl.constexpr,
    SPLITS: tl.constexpr,
    TILES: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    state, first, drafts = request_of(requests, request)
    step = tl.full((), -1, tl.int32)
    token = tl.full((), -1, tl.int64)
    if (state >= 0) & (drafts >= 0):
        decisions = decisions_of(tickets, requests, request, drafts, COLUMNS)
        n = accepted_of(decisions == ACCEPTED, drafts, COLUMNS)
        slot = request * requests.columns + n
        _k, p = limits(rows, slot)
        if (of_step(decisions, n, COLUMNS) != OPEN) & (p < 1.0):
            _margins, tokens, _argmaxes, tops, totals, draft_tops, draft_totals = decide(
                chunks, target, draft, requests, request, state, first, drafts, n, vocabulary, KIND, 1, SPLITS
            )
            scale, _is_greedy = scale_of(requests, state, KIND)
            rejected = of_step(tokens, 0, 1)
            top = of_step(tops, 0, 1)
            total = of_step(totals, 0, 1)
            # Issue these loads first: the code below waits for the candidates.
            groups = groups_of(search, rows, slot, top, scale, SPLITS)
            last = total
            count = tl.zeros((), tl.int32)
            if total > 0.0:
                count = list_candidates(
                    candidates,
                    chunks,
                    target,
                    draft,
                    requests,
                    request,
                    state,
                    first + n,
                    n,
                    p,
                    rejected,
                    is_residual(draft, rejected, n, vocabulary, KIND),
                    top,
                    total,
                    of_step(draft_tops, 0, 1),
                    of_step(draft_totals, 0, 1),
                    scale,
                    vocabulary,
                    KIND,
                    TILES,
                    WEIGHED if KIND == ONE_HOT else 16,
                )
            if count > 0:
                # Other threads stored the candidates.
                tl.debug_barrier()
                least, most = bounds_before(candidates, groups, request, count, top, scale)
                if KIND == DRAFT:
                    last = weight_of_last(groups, top, p * total, scale)
                token = settle(candidates, request, count, least, most, p, top, total, last, scale)
            if token >= 0:
                store_results(out, requests, request, first, drafts, n, token, COLUMNS)
            else:
                tl.store(candidates.count + request, count)
                tl.store(candidates.scale + request, scale)
                tl.store(candidates.top + request, top)
                tl.store(candidates.last + request, last)
                tl.store(candidates.row + request, (first + n).to(tl.int32))
                step = tl.where(count > 0, n, -1).to(tl.int32)
    tl.store(candidates.settled + request, (token >= 0).to(tl.int32))
    tl.store(candidates.step + request, step)


@triton.jit
def is_residual(draft, rejected, n, vocabulary, KIND: tl.constexpr):
    """Return True if a rejected draft counts: it is a token, and its logits exist."""
    counts = (rejected >= 0) & (rejected < vocabulary)
    if KIND == DRAFT:
        counts = counts & (n < draft.steps)
    return counts


@triton.jit
def _weigh_kernel(
    out,
    candidates,
    chunks,
    tickets,
    target,
    requests,
    rows,
    vocabulary,
    COLUMNS: tl.constexpr,
    SPLITS: tl.constexpr,
    SPAN: tl.constexpr,
):
    """Weigh the chunks of this program; the last program of a request writes its results if they are settled."""
    parts = tl.cdiv(chunks.splits, SPAN)
    request = (tl.program_id(0) // parts).to(tl.int64)
    start = (tl.program_id(0) % parts) * SPAN
    # None of these loads depends on another one.
    step = tl.load(candidates.step + request)
    row = tl.load(candidates.row + request).to(tl.int64)
    count = tl.load(candidates.count + request)
    scale = tl.load(candidates.scale + request)
    row_top = tl.load(candidates.top + request)
    one = candidate(candidates, request, 0, count)
    two = candidate(candidates, request, 1, count)
    three = candidate(candidates, request, 2, count)
    four = candidate(candidates, request, 3, count)
    if step >= 0:
        n = step.to(tl.int64)
        slot = request * requests.columns + n
        least = tl.minimum(tl.minimum(one[1], two[1]), tl.minimum(three[1], four[1]))
        before_one = tl.zeros((COLUMN,), tl.float32)
        before_two = before_one
        before_three = before_one
        before_four = before_one
        for split in range(start, tl.minimum(start + SPAN, chunks.splits)):
            # Skip a chunk whose largest logit comes after all candidates.
            if tl.load(chunks.top + slot * chunks.splits + split) >= least:
                for begin in range(split * CHUNK, split * CHUNK + CHUNK, LINES * COLUMN):
                    # Load 16-bit logits four per thread, as float32: with eight, a line would leave threads idle.
                    column = tl.max_contiguous(tl.arange(0, COLUMN), 4)
                    lane = tl.arange(0, LINES)[:, None] * COLUMN + column[None, :]
                    x = load_row(target, row, begin + lane, begin + lane < vocabulary)
                    mass = chunk_weights(x, row_top, scale)
                    before_one += weight_before(x, mass, begin, lane, LINES * COLUMN, one)
                    before_two += weight_before(x, mass, begin, lane, LINES * COLUMN, two)
                    before_three += weight_before(x, mass, begin, lane, LINES * COLUMN, three)
                    before_four += weight_before(x, mass, begin, lane, LINES * COLUMN, four)
        sums = candidates.before + (request * chunks.splits + start // SPAN) * WEIGHED
        tl.store(sums, tl.sum(before_one, axis=0))
        tl.store(sums + 1, tl.sum(before_two, axis=0))
        tl.store(sums + 2, tl.sum(before_three, axis=0))
        tl.store(sums + 3, tl.sum(before_four, axis=0))
        # Every thread's stores come before the ticket, and the last program's loads after it.
        tl.debug_barrier()
        if tl.atomic_add(tickets.request + request, 1, sem="acq_rel") == parts - 1:
            tl.debug_barrier()
            tl.store(tickets.request + request, 0)
            _k, p = limits(rows, slot)
            top, total = total_of(chunks, slot, scale, SPLITS)
            before = sums_before(candidates, request, chunks.splits, parts, SPLITS)
            last = tl.load(candidates.last + request)
            token = settle(candidates, request, count, before, before, p, top, total, last, scale)
            if token >= 0:
                first = row - n
                drafts = tl.load(requests.cu_num_logits + request + 1).to(tl.int64) - first - 1
                tl.store(candidates.settled + request, 1)
                store_results(out, requests, request, first, drafts, n, token, COLUMNS)


@triton.jit
def finish_by_thresholds(
    out,
    chunks,
    kept_chunks,
    kept_target,
    draft,
    requests,
    request,
    state,
    first,
    drafts,
    decisions,
    has_k,
    vocabulary,
    KIND: tl.constexpr,
    COLUMNS: tl.constexpr,
    SPLITS: tl.constexpr,
    TILES: tl.constexpr,
    DRAWN: tl.constexpr,
):
    """Verify the drafts of a request with limits, and write its results."""
    # Exact limits exist only for rows without a certain decision, and for the first rejected step.
    margins, tokens, _argmaxes, tops, totals, draft_tops, draft_totals = decide(
        kept_chunks, kept_target, draft, requests, request, state, first, drafts, 0, vocabulary, KIND, COLUMNS, SPLITS
    )
    is_accepted = (decisions == ACCEPTED) | ((decisions == OPEN) & (margins > 0.0))
    n = accepted_of(is_accepted, drafts, COLUMNS)
    scale, _is_greedy = scale_of(requests, state, KIND)
    rejected = of_step(tokens, n, COLUMNS)
    total = of_step(totals, n, COLUMNS)
    token = tl.zeros((), tl.int64)
    if total > 0.0:
        token = draw_limited(
            chunks,
            kept_chunks,
            kept_target,
            draft,
            requests,
            request,
            state,
            first + n,
            n,
            has_k,
            rejected,
            is_residual(draft, rejected, n, vocabulary, KIND),
            of_step(tops, n, COLUMNS),
            total,
            of_step(draft_tops, n, COLUMNS),
            of_step(draft_totals, n, COLUMNS),
            scale,
            vocabulary,
            KIND,
            TILES,
            16 if KIND == DRAFT else DRAWN,
        )
    store_results(out, requests, request, first, drafts, n, token, COLUMNS)


@triton.jit
def _finish_limited_kernel(
    out,
    candidates,
    chunks,
    kept_chunks,
    tickets,
    target,
    kept_target,
    draft,
    requests,
    rows,
    vocabulary,
    KIND: tl.constexpr,
    COLUMNS: tl.constexpr,
    SPLITS: tl.constexpr,
    TILES: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    state, first, drafts = request_of(requests, request)
    is_open = (state >= 0) & (drafts >= 0)
    if candidates is not None:
        is_open = is_open & (tl.load(candidates.settled + request) == 0)
    if is_open:
        decisions = decisions_of(tickets, requests, request, drafts, COLUMNS)
        k, p = limits(rows, request * requests.columns)
        if (k < vocabulary) | (p < 1.0):
            finish_by_thresholds(
                out,
                chunks,
                kept_chunks,
                kept_target,
                draft,
                requests,
                request,
                state,
                first,
                drafts,
                decisions,
                k < vocabulary,
                vocabulary,
                KIND,
                COLUMNS,
                SPLITS,
                TILES,
                # With top-k the first candidate is kept.
                1 if rows.k is not None else WEIGHED,
            )
        else:
            n = accepted_of(decisions == ACCEPTED, drafts, COLUMNS)
            finish_row(
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
                KIND,
                COLUMNS,
                SPLITS,
                TILES,
            )
    clear_tickets(tickets, requests, request, COLUMNS)


def finish_limited(
    out: OutputTensors,
    chunks: Chunks,
    tickets: Tickets,
    scratch: LimitScratch,
    target: FusedTarget,
    draft: DraftLogits,
    requests: RequestTensors,
    limited: KeyRows,
    vocabulary: int,
    kind: Any,
    padded: dict[str, int],
) -> None:
    """Draw the tokens of a scanned batch with limits: by the weight before candidates, where needed by thresholds."""
    search, thresholds, gathered, candidates = scratch
    common = (vocabulary, kind.value)
    if limited.settled is not None:
        listed = (out, candidates, search, chunks, tickets, target, draft, requests, limited, *common)
        registers = CANDIDATE_REGISTERS if requests.count > MULTIPROCESSORS else 255
        launch_kernel(_candidates_kernel, (requests.count,), *listed, **padded, num_warps=8, maxnreg=registers)
        span = WEIGH_SPAN if requests.count * limited.chunks > WEIGH_PROGRAMS else 1
        grid = (requests.count * triton.cdiv(limited.chunks, span),)
        weighed = (out, candidates, chunks, tickets, target, requests, limited, vocabulary)
        options = {"SPAN": span, "num_warps": 4, "maxnreg": WEIGH_REGISTERS}
        launch_kernel(_weigh_kernel, grid, *weighed, padded["COLUMNS"], padded["SPLITS"], **options)
    # `find_thresholds` applies top-p at the request's temperature.
    found = find_thresholds(search, thresholds, gathered, limited, requests.count * requests.columns)
    kept_target = target._replace(**found._asdict())
    kept_chunks = chunks._replace(total=search.kept, tiles=search.tiles)
    drawn = None if limited.settled is None else candidates
    finished = (out, drawn, chunks, kept_chunks, tickets, target, kept_target, draft, requests, limited, *common)
    launch_kernel(_finish_limited_kernel, (requests.count,), *finished, **padded, num_warps=8)

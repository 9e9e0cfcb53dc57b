"""The kernels of the fused family: every logit is read once, and the last program of a request writes its tokens.

A row is cut into chunks, one program each. A program leaves the maximum of its chunk, and where the request samples the
sum of exponentials of every tile of 256 tokens relative to that maximum. It then takes a ticket of its request; the
program with the last ticket combines the chunks of all rows, verifies the drafts and draws the token: it picks a tile
by the cumulative masses in float64, and reads that tile alone. So nothing of size V is stored and there is one launch.

Large batches take two launches. The last program of a row decides on the row's draft and publishes a rejection.
Programs run position by position, so those of later positions see it and read nothing: a row after a rejected draft
costs no bandwidth once a position's rows fill the device. Results do not depend on what was seen. The second launch
draws: its registers would keep programs that read off the device. In very large batches a program reads several chunks.

With top-k or top-p the scan decides on a draft by bounds (``_fused_limits``), and the draw takes more launches
(``_fused_limited``).
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ._fused_draw import OutputTensors, accepted_of, finish, finish_row, load_tiles, of_step
from ._fused_limited import finish_limited
from ._fused_limits import decision_of, limited_rows, scan_limited
from ._fused_rows import (
    DRAFT,
    FusedTarget,
    RequestTensors,
    decide,
    load_chunk,
    request_of,
    scale_of,
    scan_draft,
    scan_target,
)
from ._fused_scratch import clear_tickets, lent_scratch
from ._launches import launch as launch_kernel
from ._logit_keys import REJECTED, limits
from ._request_state import DraftLogits
from ._threshold_gather import TILE
from ._threshold_search import CHUNK

REGISTERS = (80, 64, 128)
"""Maximum registers per thread, by kind, of the kernel that both reads and draws."""
SCAN_REGISTERS = 64
"""Maximum registers per thread of the scan, so that eight programs share a multiprocessor."""
LIMITED_SCAN_REGISTERS = 80
"""The same with limits, for six programs: fewer registers would spill more."""
PROGRAMS = 16384
"""Programs of a scan beyond which each reads several chunks, so that a skipped row costs fewer programs."""
MOST_CHUNKS = 4
SKIP_BYTES = (32 << 20, 32 << 20, 8 << 20)
"""Bytes of target rows, by kind, from which two launches pay: fewer are in flight before the first row is decided.

With draft rows they pay sooner, since the kernel that reads and draws needs twice the registers.
"""


@triton.jit
def place_of(program, parts, requests):
    """Step, request and part of the row of a program: later steps come last."""
    request = ((program // parts) % requests.count).to(tl.int64)
    return (program // parts) // requests.count, request, program % parts


@triton.jit
def scan_chunk(
    chunks,
    target,
    draft,
    requests,
    search,
    rows,
    slot,
    first,
    state,
    step,
    drafts,
    split,
    vocabulary,
    KIND: tl.constexpr,
    LIMITED: tl.constexpr,
):
    """Read one chunk of a row, and of its draft's, and store their statistics."""
    row = first + step
    # Issue this load first: the code below waits for the parameters of the request.
    if LIMITED:
        chunk = load_chunk(target, row, split, vocabulary, rows.k is None)
    else:
        chunk = load_chunk(target, row, split, vocabulary, False)
    scale, is_greedy = scale_of(requests, state, KIND)
    if LIMITED:
        k, p = limits(rows, slot)
        if (k < vocabulary) | (p < 1.0):
            token = tl.load(requests.draft_sampled + row + 1, mask=step < drafts, other=-1).to(tl.int64)
            scan_limited(search, chunks, rows, slot, row, split, chunk, token, k, scale)
        else:
            scan_target(chunks, slot, split, chunk, scale, is_greedy)
    else:
        scan_target(chunks, slot, split, chunk, scale, is_greedy)
    if KIND == DRAFT and requests.normaliser is None:  # noqa: SIM102 -- decided when the kernel is compiled
        if (step < drafts) & (step < draft.steps) & (not is_greedy):
            scan_draft(chunks, draft, slot, state, step, split, scale, vocabulary)


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
    step, request, split = place_of(tl.program_id(0), chunks.splits, requests)
    state, first, drafts = request_of(requests, request)
    if (state < 0) | (step > drafts):
        return
    slot = request * requests.columns + step
    scan_chunk(
        chunks, target, draft, requests, None, None, slot, first, state, step, drafts, split, vocabulary, KIND, False
    )
    # Every thread's stores come before the ticket, and the last program's loads after it.
    tl.debug_barrier()
    if tl.atomic_add(tickets.request + request, 1, sem="acq_rel") == (drafts + 1) * chunks.splits - 1:
        tl.debug_barrier()
        margins, _tokens, argmaxes, tops, totals, draft_tops, draft_totals = decide(
            chunks, target, draft, requests, request, state, first, drafts, 0, vocabulary, KIND, COLUMNS, SPLITS
        )
        n = accepted_of(margins > 0.0, drafts, COLUMNS)
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
            of_step(argmaxes, n, COLUMNS),
            of_step(tops, n, COLUMNS),
            of_step(totals, n, COLUMNS),
            of_step(draft_tops, n, COLUMNS),
            of_step(draft_totals, n, COLUMNS),
            load_tiles(chunks, request * requests.columns + n, TILES),
            vocabulary,
            KIND,
            COLUMNS,
            TILES,
            8,
        )
        tl.store(tickets.request + request, 0)


@triton.jit
def _scan_kernel(
    chunks,
    tickets,
    target,
    draft,
    requests,
    search,
    rows,
    vocabulary,
    KIND: tl.constexpr,
    LIMITED: tl.constexpr,
    SPLITS: tl.constexpr,
    SPAN: tl.constexpr,
):
    if LIMITED:  # noqa: SIM102 -- decided when the kernel is compiled
        if tl.program_id(0) == 0:
            tl.store(search.needed_count, 0)
    parts = tl.cdiv(chunks.splits, SPAN)
    step, request, part = place_of(tl.program_id(0), parts, requests)
    # These two loads do not depend on each other.
    rejected = tl.load(tickets.rejected + request, volatile=True)
    state, first, drafts = request_of(requests, request)
    if (state < 0) | (step > drafts) | (rejected < step):
        return
    slot = request * requests.columns + step
    for split in range(part * SPAN, tl.minimum(part * SPAN + SPAN, chunks.splits)):
        scan_chunk(
            chunks,
            target,
            draft,
            requests,
            search,
            rows,
            slot,
            first,
            state,
            step,
            drafts,
            split,
            vocabulary,
            KIND,
            LIMITED,
        )
    if step < drafts:
        tl.debug_barrier()
        if tl.atomic_add(tickets.row + slot, 1, sem="acq_rel") == parts - 1:
            tl.debug_barrier()
            margins, tokens, _a, _b, _c, _d, _e = decide(
                chunks, target, draft, requests, request, state, first, drafts, step, vocabulary, KIND, 1, SPLITS
            )
            margin = tl.max(margins, axis=0)
            is_rejected = margin <= 0.0
            if LIMITED:
                scale, _is_greedy = scale_of(requests, state, KIND)
                token = tl.max(tokens, axis=0)
                decision = decision_of(search, rows, slot, first + step, token, margin, scale, SPLITS)
                tl.store(tickets.decision + slot, decision)
                is_rejected = decision == REJECTED
            if is_rejected:
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
    rejected = clear_tickets(tickets, requests, request, COLUMNS)
    if (state < 0) | (drafts < 0):
        return
    # The scan decided on all drafts up to the first rejected one.
    n = tl.minimum(rejected, drafts)
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
    out: OutputTensors,
    logits: Any,
    draft: DraftLogits,
    requests: RequestTensors,
    vocabulary: int,
    kind: Any,
    top_k: Any = None,
    top_p: Any = None,
) -> None:
    """Verify a batch, in one launch if it is small and has no limits."""
    if requests.count == 0:
        return
    splits = triton.cdiv(vocabulary, CHUNK.value)
    rows = requests.count * requests.columns
    padded = {
        "COLUMNS": triton.next_power_of_2(requests.columns),
        "SPLITS": triton.next_power_of_2(splits),
        "TILES": triton.next_power_of_2(splits * (CHUNK.value // TILE.value)),
    }
    target = FusedTarget(logits, *logits.stride())
    is_limited = top_k is not None or top_p is not None
    with lent_scratch(logits.device, rows, splits, is_limited) as (chunks, tickets, of_limits):
        read = (chunks, tickets, target, draft, requests)
        is_small = requests.columns == 1 or rows * vocabulary * logits.element_size() < SKIP_BYTES[kind.value]
        if is_small and not is_limited:
            registers = REGISTERS[kind.value]
            grid = (rows * splits,)
            launch_kernel(
                _verify_kernel, grid, out, *read, vocabulary, kind.value, **padded, num_warps=4, maxnreg=registers
            )
            return
        search, limited = None, None
        if of_limits is not None:
            search = of_limits.search
            settled = of_limits.candidates.settled if top_k is None else None
            marks = (tickets.rejected, tickets.decision, settled)
            limited = limited_rows(logits, vocabulary, requests, splits, *marks, top_k, top_p)
        scanned = (*read, search, limited, vocabulary, kind.value, is_limited)
        # A second row in registers, or limits, leave no time to gain.
        reads_one = not is_limited and (kind.value != DRAFT.value or requests.normaliser is not None)
        span = min(max(rows * splits // PROGRAMS, 1), MOST_CHUNKS) if reads_one else 1
        registers = LIMITED_SCAN_REGISTERS if is_limited else SCAN_REGISTERS
        options = {"SPLITS": padded["SPLITS"], "SPAN": span, "num_warps": 4, "maxnreg": registers}
        launch_kernel(_scan_kernel, (rows * triton.cdiv(splits, span),), *scanned, **options)
        if of_limits is None or limited is None:
            finished = (out, chunks, tickets, target, draft, requests, vocabulary, kind.value)
            launch_kernel(_finish_kernel, (requests.count,), *finished, **padded, num_warps=8)
            return
        finish_limited(out, chunks, tickets, of_limits, target, draft, requests, limited, vocabulary, kind, padded)

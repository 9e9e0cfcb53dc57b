"""Scratch memory of the fused kernels, kept between calls.

The program that takes the last ticket sets the counter back to zero, so a call needs no memset; only a failed launch
is followed by one. Calls share their scratch: on one device they must not overlap on several streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ._fused_candidates import Candidates, make_candidates
from ._fused_rows import Chunks
from ._launches import current_record
from ._threshold_gather import TILE, Gathered, make_gathered
from ._threshold_search import CHUNK, Search, make_search
from ._thresholds import Thresholds, make_thresholds

UNREJECTED: tl.constexpr = tl.constexpr(2**30)


class Tickets(NamedTuple):
    """Programs that are done, by request and by row, the first rejected step of each request, and decisions of rows."""

    request: Any
    row: Any
    rejected: Any
    decision: Any


class LimitScratch(NamedTuple):
    """Scratch memory for the limits of rows."""

    search: Search
    thresholds: Thresholds
    gathered: Gathered
    candidates: Candidates


class Scratch(NamedTuple):
    """Scratch memory of a launch."""

    chunks: Chunks
    tickets: Tickets
    limits: LimitScratch | None


def _make_scratch(device: Any, rows: int, splits: int, is_limited: bool) -> Scratch:
    top, total, draft_top, draft_total = torch.empty((4, rows, splits), dtype=torch.float32, device=device).unbind()
    tiles = torch.empty((rows, splits * (CHUNK.value // TILE.value)), dtype=torch.float32, device=device)
    best = torch.empty((rows, splits), dtype=torch.int32, device=device)
    tickets = Tickets(*torch.empty((4, rows), dtype=torch.int32, device=device).unbind())
    _clear(tickets)
    chunks = Chunks(top, total, best, tiles, draft_top, draft_total, splits)
    if not is_limited:
        return Scratch(chunks, tickets, None)
    search = make_search(rows, splits, device, tops=top, totals=total, pool=tiles)
    limits = search, make_thresholds(rows, device), make_gathered(rows, splits, device)
    return Scratch(chunks, tickets, LimitScratch(*limits, make_candidates(rows, splits, device)))


def _clear(tickets: Tickets) -> None:
    tickets.request.zero_()
    tickets.row.zero_()
    tickets.rejected.fill_(UNREJECTED.value)


_kept: dict[tuple[Any, int, int, bool], Scratch] = {}


@contextmanager
def lent_scratch(device: Any, rows: int, splits: int, is_limited: bool) -> Iterator[Scratch]:
    """Lend the scratch of a device, made once per size: tickets start at zero, and every launch leaves them so.

    Tickets are cleared after a launch that failed, whose first programs may have run. A graph that is captured before
    the first call of its size gets scratch of its own, cleared by every replay.

    Args:
        device: device of the logits.
        rows: rows of the batch.
        splits: chunks of a row.
        is_limited: some rows have limits.
    """
    key = (device, triton.next_power_of_2(rows), splits, is_limited)
    scratch = _kept.get(key)
    if scratch is None:
        scratch = _make_scratch(*key)
        if not _is_captured(device):
            _kept[key] = scratch
    record = current_record()
    if record is not None:
        record.on_failure = partial(_clear_after_failure, scratch.tickets)
    try:
        yield scratch
    except BaseException:
        _clear_after_failure(scratch.tickets)
        raise


def _clear_after_failure(tickets: Tickets) -> None:
    if not _is_captured(tickets.request.device):
        _clear(tickets)


def _is_captured(device: Any) -> bool:
    return device.type == "cuda" and bool(torch.cuda.is_current_stream_capturing())


@triton.jit
def clear_tickets(tickets, requests, request, COLUMNS: tl.constexpr):
    """Return the first rejected step of a request, and leave its tickets as the next launch wants them."""
    rejected = tl.load(tickets.rejected + request)
    tl.debug_barrier()
    tl.store(tickets.rejected + request, UNREJECTED)
    steps = tl.arange(0, COLUMNS)
    tl.store(tickets.row + request * requests.columns + steps, 0, mask=steps < requests.columns)
    return rejected

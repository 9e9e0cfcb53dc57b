"""Memory and threads that calls keep: a cache fills and a pool starts its threads, but a leak grows with every call."""

from __future__ import annotations

import ctypes
import gc
import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from time import perf_counter

from verispec.judge._failure import Failure, Inconclusive, Kind, Mismatch

STATUS = Path("/proc/self/status")
ROUNDS = 3
"""Rounds of calls after warm ones, each of which has to leave more than it found."""
LEAST = 4 << 20
"""Bytes that a round may leave: an allocator's own."""
THREADS = 12
"""Threads that a round may leave: a pool of up to 36 may start them in all rounds."""
SECONDS, FEWEST = 4.0, 4
"""Seconds of a round, for slow calls, and calls that it has at least."""


def in_use() -> tuple[int, int]:
    """Return the bytes and the threads that this process uses: resident ones, and those of PyTorch's tensors on GPUs.

    Freed memory goes back to the system before: the holes between blocks that a cache replaces are no leak. Of a GPU
    the bytes of living tensors count, and not what PyTorch's allocator keeps for the next ones.

    Raises:
        Inconclusive: this system does not tell.
    """
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
    try:
        status = STATUS.read_text(encoding="ascii")
    except OSError:
        raise Inconclusive(f"memory and threads of a process are read from {STATUS}, which is not there") from None
    found = {key: int(value) for key, value in re.findall(r"(VmRSS|Threads):\s+(\d+)", status)}
    return found["VmRSS"] * 1024 + _on_gpus(), found["Threads"]


def _on_gpus() -> int:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return sum(torch.cuda.memory_allocated(number) for number in range(torch.cuda.device_count()))


def assert_nothing_kept(call: Callable[[], object], calls: int, kept: int) -> None:
    """Check that memory and threads do not grow in each of `ROUNDS` rounds of the same call.

    Args:
        call: the call, whose result is dropped.
        calls: calls of a round, and of the warm one before; fewer if they take long.
        kept: bytes per call from which on a growth is a leak, if it is more than `LEAST` in a round.

    Raises:
        Mismatch: every round left a thread per call, or so many bytes.
    """
    call()
    start = perf_counter()
    call()
    calls = max(FEWEST, min(calls, int(SECONDS / max(perf_counter() - start, 1e-6))))
    seen = []
    for _ in range(1 + ROUNDS):
        for _ in range(calls):
            call()
        seen.append(in_use())
    rounds = [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(seen)]
    memory, threads = (min(found) for found in zip(*rounds, strict=True))
    each = f"each of {ROUNDS} rounds of {calls} equal calls left"
    if threads >= max(calls, THREADS):
        raise Mismatch(Failure(Kind.RESOURCE, f"{each} {threads} more threads or more"))
    if memory > max(kept * calls, LEAST):
        raise Mismatch(Failure(Kind.RESOURCE, f"{each} {memory:,} more bytes in use or more"))

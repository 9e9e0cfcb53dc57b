"""The number of threads as an axis of the suites."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def openmp_threads(count: int) -> Iterator[None]:
    """Set the number of OpenMP threads of this process, which kernels in it share with torch, for the body."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)

"""Helpers shared by several oracles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def draft_rows(cu_num_draft_tokens: Array) -> Iterator[tuple[int, int, int]]:
    """Yield (request, first draft token, end of its draft tokens) from an inclusive cumulative sum."""
    start = 0
    for b, end in enumerate(cu_num_draft_tokens.tolist()):
        yield b, start, end
        start = end

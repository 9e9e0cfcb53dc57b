"""Engines with one fault in their sliding windows: ``--engine window_mutants:<name>``."""

from __future__ import annotations

from typing import Any

import torch
from runner_mutants import Mutant

from verispec.reference.models import attention
from verispec.reference.runners.cpu import CPURunner

_mask = attention._Group.mask


def with_masks(name: str, masks: Any) -> Mutant:
    attention._Group.mask = masks
    mutant = Mutant(CPURunner)
    mutant.details = {"fault": name}
    return mutant


def windows_ignored() -> Mutant:
    """Return an engine whose tokens see everything before them."""
    return with_masks("windows ignored", lambda group, heads, window, dtype: _mask(group, heads, None, dtype))


def one_mask() -> Mutant:
    """Return an engine whose layers all have the mask of the first one."""

    def masks(group: Any, heads: int, window: int | None, dtype: torch.dtype) -> torch.Tensor:
        made: torch.Tensor = next(iter(group._masks.values())) if group._masks else _mask(group, heads, window, dtype)
        return made

    return with_masks("one mask", masks)


def windows_exchanged() -> Mutant:
    """Return an engine whose layers without a window have that of the others, which have none."""
    return with_masks(
        "windows exchanged", lambda group, heads, window, dtype: _mask(group, heads, None if window else 20, dtype)
    )


def window_without_the_token() -> Mutant:
    """Return an engine whose window holds its number of earlier tokens, the token itself not counted."""
    return with_masks(
        "window without the token",
        lambda group, heads, window, dtype: _mask(group, heads, window and window + 1, dtype),
    )


def window_of_the_last_draft() -> Mutant:
    """Return an engine that verifies all drafts of a request within the window of the last one."""

    def masks(group: Any, heads: int, window: int | None, dtype: torch.dtype) -> torch.Tensor:
        made = _mask(group, heads, None, dtype).clone()
        queries = group._query_positions
        if window is not None and queries.shape[1] <= 9:  # no prefill
            keys = torch.arange(group.num_keys)
            made.masked_fill_((keys <= queries[:, -1:] - window)[:, None, None, :], float("-inf"))
            return made
        return _mask(group, heads, window, dtype)

    return with_masks("window of the last draft", masks)

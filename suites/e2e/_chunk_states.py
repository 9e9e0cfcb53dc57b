"""Hybrid targets whose recurrent states are lost between the chunks of a prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from verispec.suites.e2e._recurrence import is_mamba2, mamba2
from verispec.suites.e2e._reference_model import Array, ReferenceModel, model, quiet

_LOST = {
    "each chunk of a prompt began without the recurrent state of the one before it": ("empty_windows", "empty_states"),
    "each chunk of a prompt began with an empty window of the convolution": ("empty_windows",),
    "each chunk of a prompt began with an empty state behind the convolution": ("empty_states",),
}
"""Mistakes in words, to follow "as if", with the parts of the state that are lost."""


def chunk_mistakes(target: Path, chunk: int) -> dict[str, Callable[[], Sequence[ReferenceModel]]]:
    """Return models by the mistake that they make with prompts in chunks of `chunk` tokens.

    A last chunk of one token is a decode step for some engines, which then keeps the state.
    """
    return {
        told: partial(lambda lost: [_mistaken(target, chunk, lost, least) for least in (1, 2)], lost)
        for told, lost in _LOST.items()
    }


def _mistaken(target: Path, chunk: int, lost: Sequence[str], least: int) -> ReferenceModel:
    return ReferenceModel(
        *(partial(_rows, target, dtype, chunk, lost, least) for dtype in (torch.float64, torch.float32))
    )


def _rows(
    target: Path,
    dtype: torch.dtype,
    chunk: int,
    lost: Sequence[str],
    least: int,
    prompt: tuple[int, ...],
    tokens: tuple[int, ...],
) -> Array:
    """Return the logits [emitted, V] of a target that loses parts of its state before chunks of `least` tokens."""
    begins = [start for start in range(chunk, len(prompt), chunk) if len(prompt) - start >= least]
    ids = torch.tensor([[*prompt, *tokens[:-1]]])
    loaded = model(target, dtype)
    with quiet(), _losing(loaded, dict.fromkeys(lost, begins)):
        rows: Array = loaded(ids, logits_to_keep=len(tokens), use_cache=False).logits[0].double().numpy()
    return rows


@contextmanager
def _losing(loaded: Any, arguments: dict[str, Sequence[int]]) -> Iterator[None]:
    """Run the block with recurrent layers that get these arguments of `mamba2`."""
    layers = [module for module in loaded.modules() if is_mamba2(module)]
    before = [layer.forward for layer in layers]
    for layer in layers:
        layer.forward = partial(mamba2, layer, **arguments)
    try:
        yield
    finally:
        for layer, forward in zip(layers, before, strict=True):
            layer.forward = forward

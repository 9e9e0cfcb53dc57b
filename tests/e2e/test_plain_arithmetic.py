"""Reference models compute as a plain program does, whatever an engine left switched on in their process.

Their float32 rows say what rounding explains: rows of bfloat16 would excuse an engine that computes in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from verispec import fixtures
from verispec.suites.e2e._reference_model import ReferenceModel, reference_model

PROMPT, TEXT = tuple(range(20, 36)), tuple(range(40, 56))


@contextmanager
def _default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def _fast_products() -> Iterator[None]:
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")


SETTINGS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "products": _fast_products,
    "default dtype": _default_dtype,
}


def _measured() -> tuple[np.ndarray[Any, Any], float]:
    """Return rows and rounding of a text, measured anew."""
    model = reference_model.__wrapped__(fixtures.model("target"))
    assert isinstance(model, ReferenceModel)
    return model.logits(PROMPT, TEXT), model.rounding(PROMPT, TEXT)


@pytest.mark.parametrize("left_on", SETTINGS.values(), ids=SETTINGS)
def test_settings_of_an_engine_change_no_row(left_on: Callable[[], AbstractContextManager[object]]) -> None:
    rows, rounding = _measured()
    with left_on():
        again, other = _measured()
    assert np.array_equal(rows, again)
    assert other == rounding
    assert rounding < 1e-3


def test_settings_of_an_engine_stay_its_own() -> None:
    with _fast_products(), _default_dtype(), torch.autocast("cpu", dtype=torch.bfloat16):
        _measured()
        assert torch.get_default_dtype() == torch.float64
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.is_autocast_enabled("cpu")

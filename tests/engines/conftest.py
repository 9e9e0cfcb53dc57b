"""A toy vLLM on the path, and the process as it was before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import toy_vllm


def _forget() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in ("vllm", "toy_plugin")]:
        del sys.modules[name]


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Writes a toy vLLM and puts it first on the path; engines change torch's determinism, which is put back."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory

    def make(generation: str, fallback: dict[str, str], *, misplaced: bool = False) -> Path:
        _forget()
        folder = toy_vllm.write(tmp_path, generation, fallback, misplaced=misplaced)
        monkeypatch.syspath_prepend(str(folder))
        return folder

    yield make
    _forget()
    torch.use_deterministic_algorithms(deterministic)
    torch.utils.deterministic.fill_uninitialized_memory = filled

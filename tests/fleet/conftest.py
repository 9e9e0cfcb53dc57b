from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import Machines
from judging import importable


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    import ray

    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("RAY_DEDUP_LOGS", "0")
    with importable():
        started = Machines(2)
        try:
            yield started
        finally:
            ray.shutdown()
            started.cluster.shutdown()

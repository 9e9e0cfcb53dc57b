"""Runs that a test starts in its own process begin with torch imported."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import warm_start

from verispec.run import supervisor


@pytest.fixture(autouse=True, scope="session")
def warm() -> Iterator[None]:
    """Fork the servers of runs from one process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "start_server", warm_start.start)
        yield

"""The cases of today, collected once."""

from __future__ import annotations

import pytest

from verispec.run.plan import Plan
from verispec.run.supervisor import Supervisor


@pytest.fixture(scope="session")
def all_cases() -> list[str]:
    """Return the ids of all cases that need no server."""
    return Supervisor(Plan("reference")).collect().selected

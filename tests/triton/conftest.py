"""Shared fixtures: the child process that runs every case through Triton's interpreter, once a session."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


@pytest.fixture(scope="session")
def interpreted() -> dict[str, dict[str, str]]:
    """Problems of every case that the interpreter ran: {op: {case: problem}}."""
    child = subprocess.run(
        [sys.executable, HERE / "interpreted.py"], capture_output=True, text=True, check=False, timeout=600
    )
    assert child.returncode == 0, child.stderr[-3000:]
    results: dict[str, dict[str, str]] = {}
    for line in child.stdout.splitlines():
        result = json.loads(line)
        results.setdefault(result["op"], {})[result["case"]] = result["problem"]
    return results

"""Shared fixtures: the child processes that run every case through Triton's interpreter, once a session."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

PARTS = 2
"""Children that share the cases out among themselves."""


@pytest.fixture(scope="session")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Problems of every case that the interpreter ran: {op: {case: problem}}.

    The first worker process that needs them runs the cases; the others wait, and read its file.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    path = folder / "interpreted.jsonl"
    with (folder / "interpreted.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            path.write_text(run(), encoding="utf-8")
    results: dict[str, dict[str, str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        result = json.loads(line)
        results.setdefault(result["op"], {})[result["case"]] = result["problem"]
    return results


def run() -> str:
    """Return the lines of all children."""
    children = [
        subprocess.Popen(
            [sys.executable, HERE / "interpreted.py", str(part), str(PARTS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for part in range(PARTS)
    ]
    lines = ""
    for child in children:
        out, err = child.communicate(timeout=600)
        assert child.returncode == 0, err[-3000:]
        lines += out
    return lines

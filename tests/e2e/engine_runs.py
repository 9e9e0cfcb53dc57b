"""Run cases on an engine in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
FOLDERS = (TESTS / "e2e", TESTS / "sampler", TESTS / "runners")
"""Folders of the engines with faults and of what they share with the sampler's and the runners'."""


def records_of(engine: str, cases: Sequence[str], folder: Path) -> dict[str, dict[str, Any]]:
    """Return the records of `cases` by case id, run in `folder` on an engine of this folder.

    Args:
        engine: ``module:fault`` or a built-in engine.
        cases: whole ids of cases of suite `e2e`, without ``e2e/``.
        folder: folder of the results file.
    """
    run = folder / "run.jsonl"
    command = [sys.executable, "-m", "verispec", "run", "--engine", engine, f"--out={run}"]
    command += [f"--only=e2e/{case}" for case in cases]
    path = os.pathsep.join(filter(None, [*map(str, FOLDERS), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env={**os.environ, "PYTHONPATH": path}, check=False
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines = [json.loads(line) for line in run.read_text().splitlines()]
    return {line["id"].removeprefix("e2e/"): line for line in lines if line["type"] == "case"}

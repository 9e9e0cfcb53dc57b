"""Run cases on an engine in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def outcomes_of(engine: str, case: str, folder: Path) -> set[str]:
    """Return the outcomes of the cases that `case` selects, run in `folder` on an engine of this folder."""
    run = folder / "run.jsonl"
    command = [sys.executable, "-m", "verispec", "run", "--engine", engine, f"--out={run}", f"--only={case}"]
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env={**os.environ, "PYTHONPATH": path}, check=False
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return {line["outcome"] for line in map(json.loads, run.read_text().splitlines()) if line["type"] == "case"}

"""Fleets for tests: small files, processes that drive them, and the results that they must have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from judging import OP, ZOO

from verispec.run import runfile

CONTROL = "oracle_engine:OracleEngine"
FAULTY = "broken_engines:LosesWrites"
ONLY = f"{OP}:EXP-1"
"""Cases that a piece runs in seconds."""


def write(path: Path, *engines: str, **top: Any) -> Path:
    """Write a fleet file with one ``[[engine]]`` for each of `engines`; `top` is what stands before them."""
    top = {"seed": 7, "only": [ONLY], **top}
    lines = [f"{name} = {json.dumps(value)}" for name, value in top.items()]
    for number, engine in enumerate(engines):
        lines += ["[[engine]]", f"name = {json.dumps(engine)}", f'label = "cell{number}"']
    path.write_text("\n".join(lines) + "\n")
    return path


def verispec(*words: str, **options: Any) -> subprocess.Popen[str]:
    """Start the command, which can import the engines of the tests."""
    return subprocess.Popen(
        [sys.executable, "-m", "verispec", *words],
        env={**os.environ, "PYTHONPATH": str(ZOO), **options.pop("env", {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def outcomes(path: Path) -> dict[str, str]:
    """Return the outcome of each case in a results file."""
    return {record.id: record.outcome for record in runfile.read(path).records}


def doubled(path: Path) -> list[str]:
    """Return the cases with more than one line in a results file."""
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return [case for case, count in Counter(line.get("id") for line in lines if "id" in line).items() if count > 1]

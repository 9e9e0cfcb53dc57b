"""The gate of the reference's run fails if a case has too little evidence, and names it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from run_files import CASES, write

from verispec.run.record import Record

TOOL = Path(__file__).resolve().parents[2] / "tools/all_decided.py"
FOOTER = {"complete": True, "reason": "", "left": 0, "warnings": [], "unmatched": []}
UNSUPPORTED = Record("sampler/x:EXP-3", "unsupported", reason="no such op")
FEW = Record("e2e/x:GEN-1:k=1", "inconclusive", reason="only 7 draws")


@pytest.mark.parametrize(
    ("records", "code", "said"),
    [
        ([*CASES, UNSUPPORTED], 0, "0 of 3 cases undecided"),
        ([*CASES, FEW, UNSUPPORTED], 1, "e2e/x:GEN-1:k=1: only 7 draws\n1 of 4 cases undecided"),
    ],
)
def test_undecided_cases_are_named(tmp_path: Path, records: list[Record], code: int, said: str) -> None:
    path = tmp_path / "run.jsonl"
    write(path, *records).close(FOOTER)
    done = gate(path)
    assert (done.returncode, done.stderr) == (code, "")
    assert said in done.stdout


def test_a_run_that_has_not_ended_proves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write(path).release()
    done = gate(path)
    assert (done.returncode, done.stderr) == (1, f"{path}: the run has not ended\n")


def gate(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(TOOL), str(path)], capture_output=True, text=True, check=False)

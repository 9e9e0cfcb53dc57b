"""Progress of a campaign, told from what its process writes."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from verispec.mutants import progress

WRITES = """
import os, sys, time
_, results, told, *outcomes = sys.argv
with open(results, "a") as file:
    file.writelines('{"verdict": "%s"}\\n' % outcome for outcome in outcomes)
    file.write('{"verdict": "surv')
while not os.path.exists(told):
    time.sleep(0.02)
sys.exit(3)
"""


def started(results: Path, told: Path, *outcomes: str) -> subprocess.Popen[bytes]:
    """Start a process that writes a result per mutant, and ends when `told` exists."""
    return subprocess.Popen([sys.executable, "-c", WRITES, str(results), str(told), *outcomes])


@pytest.mark.parametrize(
    ("total", "line"),
    [(7, "3 of 7 mutants, 2 without a failing case, "), (0, "measuring the cases without a mutant: 3 so far, ")],
)
def test_results_are_counted_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: int, line: str
) -> None:
    """Earlier results of the file do not count, nor does a line that is not whole."""
    results, told = tmp_path / "results.jsonl", tmp_path / "told"

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            if text.startswith(line):
                told.touch()
            return super().write(text)

    monkeypatch.setattr(progress, "EVERY", 0.05)
    monkeypatch.setattr(sys, "stderr", Stream())
    results.write_text('{"type": "header"}\n{"verdict": "survived"}\n')
    process = started(results, told, "killed", "survived", "not reached")
    assert progress.wait(process, results, total, before=2) == 3


def test_a_quick_process_tells_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = tmp_path / "told"
    told.touch()
    assert progress.wait(started(tmp_path / "results.jsonl", told), tmp_path / "results.jsonl", 1, before=0) == 3
    assert not capsys.readouterr().err

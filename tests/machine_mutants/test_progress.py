"""Progress of a campaign, told from what its process writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from verispec.mutants import progress

WRITES = """
import sys, time
with open(sys.argv[1], "a") as file:
    for verdict in sys.argv[2].split(","):
        file.write('{{"verdict": "%s"}}\\n' % verdict)
    file.write('{{"verdict": "surv')
    file.flush()
    time.sleep({seconds})
sys.exit(3)
"""


def started(path: Path, verdicts: str, seconds: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WRITES.format(seconds=seconds), str(path), verdicts])


@pytest.mark.parametrize(
    ("total", "told"),
    [(7, "3 of 7 mutants, 2 without a failing case, "), (0, "measuring the cases without a mutant: 3 so far, ")],
)
def test_results_are_counted_as_they_come(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, total: int, told: str
) -> None:
    """Earlier results of the file do not count, nor does a line that is not whole."""
    monkeypatch.setattr(progress, "EVERY", 0.2)
    path = tmp_path / "results.jsonl"
    path.write_text('{"type": "header"}\n{"verdict": "survived"}\n')
    assert progress.wait(started(path, "killed,survived,not reached", 1.5), path, total) == 3
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(told)


def test_a_quick_process_tells_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert progress.wait(started(tmp_path / "none.jsonl", "killed", 0.0), tmp_path / "none.jsonl", 1) == 3
    assert not capsys.readouterr().err

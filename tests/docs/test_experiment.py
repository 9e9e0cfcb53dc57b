"""The program of the guide to the reference engine runs unmodified."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[2] / "docs/how-to/use-the-reference-engine.md"


def test_the_experiment_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = re.search(r":caption: experiment.py\n\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert code
    exec(compile(code[1], "experiment.py", "exec"), {"__name__": "experiment"})
    lines = [line for line in capsys.readouterr().out.splitlines() if "drafts accepted" in line]
    assert [line.split()[0] for line in lines] == ["ngram", "draft_model", "eagle3", "mtp"]
    assert all(0 < float(line.split()[1]) <= 4 for line in lines)

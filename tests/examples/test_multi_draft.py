"""examples/multi_draft: a verification rule of another package, whose losses its suite finds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from judging import command

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/multi_draft"
LINE = "        residual = (residual - q).clamp(min=0)\n"


@pytest.mark.parametrize(("wrong", "failing"), [(LINE, set()), ("", {"MDV-1", "MDV-2"})], ids=["as it is", "lossy"])
def test_the_suite_tells_a_lossy_rule(
    tmp_path: Path, wrong: str, failing: set[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "multi_draft"
    shutil.copytree(EXAMPLE, folder)
    engine = folder / "engine.py"
    assert LINE in engine.read_text()
    engine.write_text(engine.read_text().replace(LINE, wrong))
    monkeypatch.chdir(folder)
    command(capfd, "run", "--engine", "engine:Engine", "--suite", ".", "--seed", "3", "--out", "run.jsonl")
    lines = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    seen = {line["id"]: line for line in lines if "outcome" in line}
    assert len(seen) == 7
    assert {case.split(":")[1] for case, line in seen.items() if line["outcome"] == "fail"} == failing
    told = [line["failure"]["message"] for line in seen.values() if ":MDV-2:" in line["id"] and "failure" in line]
    assert all("token" in message and "times, expected" in message for message in told)

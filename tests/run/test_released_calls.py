"""A worker keeps nothing of a case that has ended: tensors of thousands of cases would fill the memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from judging import command

SUITE = """
import weakref

from verispec.cases import case
from verispec.judge import Mismatch

OPS = []


@case("ANY-1", subjects=["expand_batch_to_tokens"], check="released", turn=[1, 2])
def test_released(op, subject, turn):
    if OPS and OPS[0]() is not None:
        raise Mismatch("the op of the case before is still there, with the tensors of its last call")
    OPS.append(weakref.ref(op))
"""


def test_the_tensors_of_a_case_are_released_when_it_ends(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    suite, out = tmp_path / "suite", tmp_path / "out.jsonl"
    suite.mkdir()
    (suite / "test_released.py").write_text(SUITE)
    done = command(capfd, "run", "--suite", str(suite), "--out", str(out))
    results = [json.loads(line) for line in out.read_text().splitlines()]
    outcomes = [result["outcome"] for result in results if result["type"] == "case"]
    assert outcomes == ["pass", "pass"], done.stdout + done.stderr

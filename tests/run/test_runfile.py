"""The results file: usable after a kill, strict about its format, resumable only by the same run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from verispec.errors import VerispecError
from verispec.judge import Outcome
from verispec.run import runfile
from verispec.run.journal import to_line
from verispec.run.plan import Plan
from verispec.run.record import FAILING, UNDECIDED, Record, category_of, is_quick

ENGINE = {"name": "vllm", "version": "0.32.0", "platform": "cpu", "device": "cpu", "details": {}}
CASES = [Record("sampler/x:EXP-1:b=1", "pass", 0.5), Record("sampler/x:EXP-2", "fail", failure={"kind": "value"})]


def header(**plan: Any) -> dict[str, Any]:
    return runfile.make_header(Plan("vllm", **plan), ENGINE, 2, (), ["verispec", "run"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    writer = runfile.Writer(path, header())
    for record in CASES:
        writer.add(record)
    return path


def test_what_is_written_is_read(path: Path) -> None:
    run = runfile.read(path)
    assert run.records == tuple(CASES)
    assert run.header == header() | {"started": run.header["started"]}
    assert run.footer == {}


def test_every_line_is_there_as_soon_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    writer = runfile.Writer(path, header())
    for number, record in enumerate(CASES, 1):
        writer.add(record)
        assert len(path.read_text().splitlines()) == 1 + number


def test_a_last_line_that_is_cut_off_is_ignored(path: Path) -> None:
    whole = path.read_bytes()
    for cut in range(1, 40):
        path.write_bytes(whole[:-cut])
        assert runfile.read(path).records in (tuple(CASES[:1]), tuple(CASES))


def test_a_line_in_the_middle_that_is_cut_off_is_an_error(path: Path) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:-3], lines[2]]) + "\n")
    with pytest.raises(VerispecError, match="line 2 is not JSON") as caught:
        runfile.read(path)
    assert caught.value.diagnostic.where == str(path)


@pytest.mark.parametrize(
    ("text", "code"),
    [("", "V-RUN-READ"), ('{"type":"case"}\n', "V-RUN-READ"), ('{"type":"header","format":99}\n', "V-RUN-FORMAT")],
    ids=["empty", "no header", "another format"],
)
def test_what_is_no_run_file_is_said(tmp_path: Path, text: str, code: str) -> None:
    (tmp_path / "run.jsonl").write_text(text)
    with pytest.raises(VerispecError) as caught:
        runfile.read(tmp_path / "run.jsonl")
    assert caught.value.diagnostic.code == code


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(VerispecError) as caught:
        runfile.Writer(tmp_path / "file" / "run.jsonl", header())
    assert caught.value.diagnostic.code == "V-RUN-WRITE"


def test_the_same_run_can_be_resumed(tmp_path: Path) -> None:
    runfile.require_same_run(header(), header(processes=2, timeout=1), tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda h: h["engine"].update(version="0.33.0"), "another engine: version was 0.32.0, is 0.33.0"),
        (lambda h: h["engine"].update(asked="reference"), "another engine: asked was vllm, is reference"),
        (lambda h: h.update(seed=8), "another seed: was 7, is 8"),
        (lambda h: h.update(verispec="9"), "another verispec"),
        (lambda h: h["platform"]["packages"].update(torch="0"), "another packages: torch was"),
    ],
    ids=["engine version", "engine", "seed", "verispec", "packages"],
)
def test_another_run_cannot(tmp_path: Path, change: Any, said: str) -> None:
    other = json.loads(json.dumps(header()))
    change(other)
    with pytest.raises(VerispecError) as caught:
        runfile.require_same_run(header(), other, tmp_path)
    assert caught.value.diagnostic.code == "V-RUN-RESUME"
    assert said in caught.value.diagnostic.message


def test_lines_are_strict_json() -> None:
    line = to_line({"nan": float("nan"), "inf": [float("-inf")], "path": Path("a"), 3: "ключ"})
    assert json.loads(line) == {"nan": "nan", "inf": ["-inf"], "path": "a", "3": "ключ"}
    assert line.count("\n") == 1


def test_every_outcome_has_a_meaning() -> None:
    assert {*FAILING, *UNDECIDED, "pass", "xfail", "xpass"} == {str(outcome) for outcome in Outcome}


@pytest.mark.parametrize(
    ("case", "category", "quick"),
    [
        ("sampler/x:EXP-1:b=1", "exact", True),
        ("sampler/x:EXP-1:size=large", "exact", False),
        ("sampler/x:EXP-1:mode=generated", "generated", False),
        ("sampler/x:EXP-1:relation=split;mode=generated", "metamorphic", False),
        ("sampler/x:WS-10:mode=law", "law", False),
        ("sampler/x:EXP-1:mode=synthetic", "exact", True),
        ("signatures/x:SIG-1", "live", True),
        ("e2e/greedy:GEN-1:draft=none", "text", False),
    ],
)
def test_the_category_is_read_from_the_id(case: str, category: str, quick: bool) -> None:
    parsed = Record(case, "pass").case
    assert (category_of(parsed), is_quick(parsed)) == (category, quick)

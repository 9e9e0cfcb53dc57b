"""The results file: usable after a kill, strict about its format, resumable only by the same run."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run_files import CASES, header, write

from verispec import exits
from verispec.errors import VerispecError
from verispec.judge import Outcome
from verispec.run import runfile
from verispec.run.json_lines import to_line
from verispec.run.record import FAILING, UNDECIDED, Record, category_of, is_quick


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    write(path).release()
    return path


def test_what_is_written_is_read(path: Path) -> None:
    run = runfile.read(path)
    assert run.records == tuple(CASES)
    assert run.header == header() | {"started": run.header["started"]}
    assert run.footer == {}


def test_every_line_is_there_as_soon_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    writer = runfile.Writer(path)
    writer.begin(header())
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
    [
        ("", "V-RUN-READ"),
        ('{"type":"case"}\n', "V-RUN-READ"),
        ("[1]\n", "V-RUN-READ"),
        ('{"type":"header","format":99}\n', "V-RUN-FORMAT"),
        ('{"type":"header","format":1}\n', "V-RUN-READ"),
    ],
    ids=["empty", "no header", "no object", "another format", "no fields"],
)
def test_what_is_no_run_file_is_said(tmp_path: Path, text: str, code: str) -> None:
    (tmp_path / "run.jsonl").write_text(text)
    with pytest.raises(VerispecError) as caught:
        runfile.read(tmp_path / "run.jsonl")
    assert (caught.value.diagnostic.code, caught.value.exit_code) == (code, exits.CANNOT_TELL)


def damaged(change: Any) -> str:
    line = json.loads(json.dumps(header()))
    change(line)
    return json.dumps(line) + "\n"


def without(*path: str) -> Any:
    def change(line: Any) -> None:
        for name in path[:-1]:
            line = line[name]
        del line[path[-1]]

    return change


@pytest.mark.parametrize(
    "text",
    [
        *(damaged(without(name)) for name in ("verispec", "engine", "platform", "seed", "selection", "started")),
        damaged(without("engine", "version")),
        damaged(without("platform", "packages")),
        damaged(lambda line: line.update(seed="7")),
        damaged(lambda line: line.update(engine=None)),
        damaged(lambda line: line.update(expectations=[{"no": "entry"}])),
        damaged(lambda line: None) + '{"type":"case","outcome":"pass","seconds":0}\n',
        damaged(lambda line: None) + '{"type":"case","id":"nonsense","outcome":"pass","seconds":0}\n',
        damaged(lambda line: None) + '{"type":"case","id":"sampler/x:EXP-1","outcome":3,"seconds":0}\n',
        damaged(lambda line: None) + '{"type":"footer"}\n',
    ],
)
def test_a_damaged_file_is_said_to_be(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.jsonl").write_text(text)
    with pytest.raises(VerispecError) as caught:
        runfile.read(tmp_path / "run.jsonl")
    assert (caught.value.diagnostic.code, caught.value.exit_code) == ("V-RUN-READ", exits.CANNOT_TELL)


def test_a_file_that_is_being_written_is_busy(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    writer = write(path)
    for _ in range(2):
        with pytest.raises(VerispecError) as caught:
            runfile.Writer(path)
        assert (caught.value.diagnostic.code, caught.value.exit_code) == ("V-RUN-BUSY", exits.CANNOT_TELL)
    writer.release()
    runfile.Writer(path).release()
    assert runfile.read(path).records == tuple(CASES), "a run that does not begin leaves the file as it was"


def test_a_file_is_locked_before_it_has_a_header(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    first = runfile.Writer(path)
    with pytest.raises(VerispecError, match="V-RUN-BUSY"):
        runfile.Writer(path)
    first.release()
    assert not path.exists()


@pytest.mark.parametrize("compressed", [True, False])
def test_a_compressed_file_is_read_and_never_written(tmp_path: Path, path: Path, compressed: bool) -> None:
    packed = tmp_path / "kept.jsonl.gz"
    if compressed:
        packed.write_bytes(gzip.compress(path.read_bytes()))
        assert runfile.read(packed).records == tuple(CASES)
    with pytest.raises(VerispecError) as caught:
        runfile.Writer(packed)
    assert (caught.value.diagnostic.code, caught.value.exit_code) == ("V-RUN-WRITE", exits.USAGE)
    assert "compressed results files are only read" in str(caught.value)
    assert packed.exists() == compressed, "no file is left"


@pytest.mark.parametrize("indent", [None, 2])
def test_another_json_document_is_told_as_one(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "summary.json"
    path.write_text(json.dumps({"format": "verispec/verdict/1", "causes": []}, indent=indent))
    with pytest.raises(VerispecError, match="not a results file: it is a JSON document of format verispec/verdict/1"):
        runfile.read(path)


@pytest.mark.parametrize("text", ["my notes\n", '{"type":"notes"}\n', "{}\n", "\x00\x01", "3\n"])
def test_what_is_no_run_file_is_not_overwritten(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(VerispecError) as caught:
        runfile.Writer(path)
    assert (caught.value.diagnostic.code, caught.value.exit_code) == ("V-RUN-OVERWRITE", exits.USAGE)
    assert path.read_text() == text


def test_a_folder_is_no_run_file(tmp_path: Path) -> None:
    with pytest.raises(VerispecError) as caught:
        runfile.Writer(tmp_path)
    assert (caught.value.diagnostic.code, caught.value.exit_code) == ("V-RUN-WRITE", exits.CANNOT_TELL)
    assert list(tmp_path.iterdir()) == []
    assert list(tmp_path.parent.glob(f"{tmp_path.name}.new")) == []


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    """A limit on the size of files does what a full disk does; in a process of its own, since it cannot be raised."""
    script = (
        "import resource, sys, pathlib\n"
        "from run_files import write, CASES\n"
        "from verispec.errors import VerispecError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))\n"
        "try:\n"
        "    write(pathlib.Path(sys.argv[1]), *CASES * 100)\n"
        "except VerispecError as error:\n"
        "    print(error); sys.exit(error.exit_code)\n"
    )
    path = tmp_path / "run.jsonl"
    command = [sys.executable, "-c", script, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == exits.CANNOT_TELL, done.stderr
    assert "V-RUN-WRITE" in done.stdout
    assert "--resume" in done.stdout
    assert path.stat().st_size <= 4000
    kept = runfile.read(path).records
    assert [record.id for record in kept] == [record.id for record in CASES], "what fits on the disk can be resumed"


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(VerispecError) as caught:
        runfile.Writer(tmp_path / "file" / "run.jsonl")
    assert caught.value.diagnostic.code == "V-RUN-WRITE"
    assert caught.value.exit_code == exits.CANNOT_TELL


def test_the_same_run_can_be_resumed(tmp_path: Path) -> None:
    runfile.require_same_run(header(), header(processes=2, timeout=1), tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda h: h["engine"].update(version="0.33.0"), "another engine: version was 0.32.0, is 0.33.0"),
        (lambda h: h["engine"].update(digest="f00"), "another engine: digest was , is f00"),
        (lambda h: h["engine"].update(asked="reference"), "another engine: asked was vllm, is reference"),
        (lambda h: h.update(seed=8), "another seed: was 7, is 8"),
        (lambda h: h.update(verispec="9"), "another verispec"),
        (lambda h: h["platform"]["packages"].update(torch="0"), "another packages: torch was"),
    ],
    ids=["engine version", "engine code", "engine", "seed", "verispec", "packages"],
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

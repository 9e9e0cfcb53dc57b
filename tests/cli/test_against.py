"""``run --against BASE``: only what did not fail in BASE counts; ``--update-expectations`` and ``repro --suite``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from judging import OP, in_process

from verispec import exits
from verispec.errors import VerispecError
from verispec.expectations import load
from verispec.run import runfile
from verispec.whole_file import write_whole

ONLY = ("--only", f"{OP}:EXP-2")
FAULTY, CONTROL = "broken_engines:LosesWrites", "oracle_engine:OracleEngine"
EXAMPLE = Path(__file__).parents[2] / "examples/new_op"
Capsys = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path / "cache"))


def run(capsys: Capsys, *words: str) -> tuple[int, str, str]:
    return in_process(capsys, "run", *words)


def test_only_new_failures_count(tmp_path: Path, capsys: Capsys) -> None:
    good, bad = str(tmp_path / "good.jsonl"), str(tmp_path / "bad.jsonl")
    assert run(capsys, "--engine", CONTROL, *ONLY, "--seed", "5", "--out", good)[0] == exits.GOOD
    summary = tmp_path / "summary.md"
    code, out, _ = run(
        capsys, "--engine", FAULTY, *ONLY, "--against", good, "--out", bad, "--markdown", str(summary), "--github"
    )
    assert code == exits.BAD
    assert "6 new " in out
    assert re.search(r"^::error (file=[\w/]+\.py,line=\d+,)?title=EXP-2", out, re.MULTILINE)
    assert summary.read_text().startswith("### verispec: 6 new failing cases, 0 fixed")
    assert runfile.read(Path(bad)).header["seed"] == 5, "generated cases are the same under the same seed only"

    code, out, err = run(capsys, "--engine", FAULTY, *ONLY, "--against", bad, "-x", "--github")
    assert code == exits.GOOD, "what failed before neither counts nor stops the run"
    assert "--against:" not in err
    assert "6 known" in out
    assert "::error" not in out

    code, out, err = run(capsys, "--engine", CONTROL, *ONLY, "--against", "last", "--json")
    assert f"--against: the older run is of {FAULTY}, this one of {CONTROL}: other failures, other times" in err
    said = json.loads(out)
    assert (code, said["exit"], len(said["fixed"]), said["new"]) == (exits.GOOD, exits.GOOD, 6, [])


def test_a_gate_runs_what_fits_into_a_time(tmp_path: Path, capsys: Capsys) -> None:
    base = tmp_path / "base.jsonl"
    run(capsys, "--engine", FAULTY, *ONLY, "--out", str(base))
    old = runfile.read(base).records
    words = ("--engine", FAULTY, "--against", str(base), "--json", "--within")
    code, out, err = run(capsys, *words, "1000", "--out", str(tmp_path / "all.jsonl"))
    assert (code, json.loads(out)["new"]) == (exits.GOOD, []), "the older run decides what is new, too"
    assert f"--within 1000: {len(old)} of {len(old)} cases" in err
    assert len(runfile.read(tmp_path / "all.jsonl").records) == len(old)

    least = sorted(record.seconds for record in old)
    code, out, _ = run(capsys, *words, str(max(sum(least[:3]) + 1e-9, 0.1)), "--out", str(tmp_path / "few.jsonl"))
    few = runfile.read(tmp_path / "few.jsonl")
    assert (code, few.header["selection"]["exact"]) == (exits.GOOD, True)
    assert 0 < len(few.records) <= len(old)


def test_a_stale_entry_fails_although_nothing_is_new(tmp_path: Path, capsys: Capsys) -> None:
    base, known, next_one = tmp_path / "base.jsonl", tmp_path / "known.toml", tmp_path / "next.toml"
    code, out, _ = run(capsys, "--engine", FAULTY, *ONLY, "--out", str(base), "--update-expectations", str(known))
    assert code == exits.BAD
    assert f"proposal of known failures: {known}" in out
    known.write_text(known.read_text().replace('issue = ""', 'issue = "https://example.org/1"'))
    assert load(known)
    code, out, _ = run(
        capsys, "--engine", CONTROL, *ONLY, "--expect", str(known), "--update-expectations", str(next_one),
        "--against", str(base),
    )  # fmt: skip
    assert code == exits.BAD
    assert "stale: " in out
    assert load(next_one) == ()


def test_a_base_that_is_none_is_said_before_anything_runs(tmp_path: Path, capsys: Capsys) -> None:
    code, out, err = run(capsys, "--engine", CONTROL, "--against", str(tmp_path / "nowhere.jsonl"))
    assert (code, out) == (exits.USAGE, "")
    assert "V-RUN-READ" in err


def test_repro_takes_a_suite_of_ones_own_and_the_report_names_it(
    capsys: Capsys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(EXAMPLE)
    out_file = tmp_path / "run.jsonl"
    code, out, _ = run(capsys, "--engine", "engine:Engine", "--suite", ".", "--out", str(out_file))
    assert code == exits.GOOD
    found = runfile.read(out_file)
    assert found.header["selection"]["suites"] == [str(EXAMPLE)]
    case = found.records[0].id
    code, out, _ = in_process(capsys, "repro", case, "--engine", "engine:Engine", "--suite", ".")
    assert code == exits.GOOD
    assert case in out
    code, _, err = in_process(capsys, "repro", case, "--engine", "engine:Engine", "--suite", "nowhere")
    assert (code, "V-RUN-SUITE" in err) == (exits.USAGE, True)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_whole(path, "one")
    (tmp_path / "link").symlink_to(path)
    write_whole(tmp_path / "link", b"two")
    assert path.read_text() == "two"
    assert (tmp_path / "link").is_symlink()
    with pytest.raises(VerispecError) as caught:
        write_whole(tmp_path / "nowhere/a.txt", "three", what="the report")
    assert caught.value.diagnostic.message == "the report cannot be written"
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "cache") == ["a.txt", "link"]
    write_whole(Path("/dev/null"), "four")

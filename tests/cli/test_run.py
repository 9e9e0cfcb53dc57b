"""``verispec run`` from the outside: foreign folders, interrupts, resuming, exit codes, JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from judging import OP, PATIENCE, SUITE, THE_ONE, ZOO, in_process, verdict_on

from verispec import exits
from verispec.errors import VerispecError
from verispec.expectations import Expectation
from verispec.run import runfile
from verispec.run.plan import SEED

pytestmark = pytest.mark.timeout(900)
"""A supervisor that is broken may wait for ever; far above what a test takes on a busy machine."""

ORACLE = "oracle_engine:OracleEngine"
CASE = f"{OP}:EXP-2:dtype=int32;cu=int32"


def verispec(*words: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "verispec", *words],
        env={**os.environ, "PYTHONPATH": str(ZOO)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_a_foreign_folder_changes_nothing_and_is_left_alone(tmp_path: Path) -> None:
    """Configuration, plugins and modules of the caller's tree must not get into the run, nor the run into the tree."""
    hostile = {
        "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "--no-such-option"\n',
        "pytest.ini": "[pytest]\naddopts = --no-such-option\n",
        "conftest.py": "raise RuntimeError('not my conftest')\n",
        "reference.py": "raise RuntimeError('not my reference')\n",
        "pytest.py": "raise RuntimeError('not my pytest')\n",
    }
    for name, text in hostile.items():
        (tmp_path / name).write_text(text)
    words = ["run", "--engine", ORACLE, "--only", CASE, "--json"]
    child = subprocess.run(
        [sys.executable, "-P", "-m", "verispec", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ZOO), "PYTEST_ADDOPTS": "--no-such-option"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == exits.GOOD, child.stderr
    assert json.loads(child.stdout)["counts"] == {"pass": 1}
    assert {path.name for path in tmp_path.iterdir()} == set(hostile)


def wait_until(path: Path, text: str, child: subprocess.Popen[str]) -> None:
    while not (path.exists() and text in path.read_text()):
        assert child.poll() is None, child.communicate()
        time.sleep(0.05)


@pytest.fixture
def hanging(tmp_path: Path) -> Any:
    """A run that stands still at its one hanging case, and the file that it writes."""
    out = tmp_path / "run.jsonl"
    words = ("run", "--engine", "broken_engines:Hangs", "--only", SUITE, "--seed", str(SEED), "--out", str(out))
    words += ("--timeout", "10000")
    child = verispec(*words, start_new_session=True)
    wait_until(out, "counts=wide;dtype=int64", child)
    yield child, out
    child.kill()
    child.communicate()


def test_a_run_survives_a_kill_and_is_resumed(hanging: Any) -> None:
    child, out = hanging
    child.kill()
    child.wait()
    before = runfile.read(out)
    assert before.records
    assert not before.footer

    with out.open("a") as file:
        file.write('{"type":"case","id":"sampler/expa')
    verdict = verdict_on("broken_engines:Hangs", out, resume=out, timeout=PATIENCE)

    assert verdict.complete
    assert verdict.run.records[: len(before.records)] == before.records, "what was judged is not judged again"
    assert [(c.kind, c.cases) for c in verdict.causes] == [("timeout", (THE_ONE,))]


def test_nothing_goes_on_after_a_kill(tmp_path: Path) -> None:
    """The child of a supervisor that was killed ends too."""
    told = tmp_path / "pid"
    engine = tmp_path / "telling_engine.py"
    engine.write_text(
        "import os, pathlib, broken_engines\n"
        f"class Telling(broken_engines.Hangs):\n"
        f"    def __init__(self):\n"
        f"        pathlib.Path({str(told)!r}).write_text(f'{{os.getpid()}} ')\n"
    )
    words = ("run", "--engine", "telling_engine:Telling", "--only", SUITE, "--out", str(tmp_path / "run.jsonl"))
    child = verispec(*words, cwd=tmp_path)
    wait_until(told, " ", child)
    child.kill()
    child.communicate()
    judging = int(told.read_text())
    while True:
        try:
            os.kill(judging, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)


def test_an_interrupt_leaves_a_whole_file_and_a_report(hanging: Any) -> None:
    child, out = hanging
    child.send_signal(signal.SIGINT)
    stdout, _ = child.communicate()

    footer = runfile.read(out).footer
    assert (footer["complete"], footer["reason"]) == (False, "interrupted")
    assert footer["left"] > 0
    assert "the run was interrupted" in stdout
    assert child.returncode == exits.CANNOT_TELL


def test_a_run_of_another_engine_is_not_resumed(tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    verdict_on(ORACLE, out, only=(CASE,))
    whole = out.read_bytes()
    with pytest.raises(VerispecError, match="another engine: asked was"):
        verdict_on("broken_engines:Noisy", out, resume=out)
    assert out.read_bytes() == whole


def test_expectations_are_applied_and_checked(tmp_path: Path) -> None:
    known = [
        Expectation(1, f"{OP}:*dtype=float32*", "fail", "https://example.org/1"),
        Expectation(2, f"{OP}:EXP-2:dtype=int64", "fail", "https://example.org/1"),
    ]
    only = (f"{OP}:EXP-2",)
    verdict = verdict_on(
        "broken_engines:LosesWrites", tmp_path / "run.jsonl", only=only, options={"expectations": known}
    )

    assert {r.id.partition("dtype=")[2]: r.outcome for r in verdict.run.records} == {
        "float32;cu=int32": "xfail",
        "float32;cu=int64": "xfail",
        "int32;cu=int32": "fail",
        "int32;cu=int64": "fail",
        "int64;cu=int32": "xpass",
        "int64;cu=int64": "xpass",
        "bool;cu=int32": "fail",
        "bool;cu=int64": "fail",
    }
    assert [c.issues for c in verdict.known] == [("https://example.org/1",)]
    assert verdict.exit_code() == exits.BAD


def test_what_selects_nothing_is_an_error_with_the_nearest_cases(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = in_process(capsys, "run", "--engine", ORACLE, "--only", f"{OP}:EXP-2:dtype=int23")
    assert (code, out) == (exits.USAGE, "")
    assert "V-RUN-SELECT" in err
    assert f"did you mean '{OP}:EXP-2:dtype=int32'" in err


@pytest.mark.parametrize("command", [("run",), ("run", "--collect")], ids=" ".join)
def test_a_case_of_another_suite_contradicts_the_suite(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """The message named near cases of the wrong suite, and not the reason."""
    words = ("--engine", ORACLE, "--suite", "e2e", "--only", f"{OP}:EXP-2")
    code, out, err = in_process(capsys, *command, *words)
    assert (code, out) == (exits.USAGE, "")
    assert f"'{OP}:EXP-2' is of suite sampler, and --suite selects e2e alone" in err
    assert "omit --suite, or add --suite sampler" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--suite", "nowhere"), "V-RUN-SUITE"),
        (("--resume", "nowhere.jsonl"), "V-RUN-READ"),
        (("--expect", "nowhere.toml"), "V-EXPECT"),
        (("--timeout", "0"), "--timeout"),
        (("-n", "0"), "-n"),
    ],
)
def test_a_wrong_command_ends_with_usage(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    code, _, err = in_process(capsys, "run", "--engine", ORACLE, *words)
    assert code == exits.USAGE
    assert said in err


@pytest.fixture
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("engine", "code", "said"),
    [
        ("referenc", exits.USAGE, "did you mean reference"),
        ("vllm@", exits.USAGE, "V-ENG-UNKNOWN"),
        ("no_such_module:Engine", exits.USAGE, "V-ENG-MODULE"),
        ("broken_engines:Hang", exits.USAGE, "did you mean Hangs"),
        ("needs_more:Engine", exits.CANNOT_TELL, "no_such_package_anywhere"),
    ],
)
def test_a_wrong_engine_name_is_usage_and_a_broken_engine_is_not(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    code: int,
    said: str,
) -> None:
    (tmp_path / "needs_more.py").write_text("import no_such_package_anywhere\n")
    monkeypatch.chdir(tmp_path)
    for words in (["run", "--only", CASE], ["repro", CASE], ["smoke"]):
        found, _, err = in_process(capsys, *words, "--engine", engine)
        assert found == code, err
        assert said in err
        assert " cases\n" not in err, "the engine is looked for before the suites are collected"
        assert "results file" not in err, "none is written"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--suite", "e2e"), "smoke runs quick cases, and the suite e2e has none"),
        (("--only", "e2e/greedy"), "smoke runs quick cases, and the suite e2e has none"),
        (("--only", "sampler/whole_sampler:ANY-10"), "smoke has no quick case that these patterns select"),
        (("--only", "sampler/whole_smpler:ANY-10"), "selects none of"),
    ],
)
def test_a_selection_without_quick_cases_is_said(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    """It was a report without a row, and the words "no unexpected failure in 0 cases"."""
    code, out, err = in_process(capsys, "smoke", *words)
    assert (code, out) == (exits.USAGE, "")
    assert said in err


def test_smoke_of_one_op(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    code, _, _ = in_process(capsys, "smoke", "--only", "sampler/flatten_sampled", "--out", str(out))
    assert code == exits.GOOD
    clauses = [record.case.clause for record in runfile.read(out).records]
    assert {record.case.subject for record in runfile.read(out).records} == {"flatten_sampled"}
    assert 5 < len(clauses) == len(set(clauses)), "the first case of each clause"


def test_a_server_that_is_not_there_is_noticed_before_the_suites_are_collected(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, err = in_process(capsys, "run", "--only", CASE, "--engine", "http://127.0.0.1:1/v1")
    assert (code, "V-HTTP-CONNECT" in err) == (exits.CANNOT_TELL, True)
    assert " cases\n" not in err
    assert "results file" not in err


def test_an_engine_that_cannot_start_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is announced is there."""
    out = tmp_path / "run.jsonl"
    words = ("--engine", "broken_engines:CrashesAtStart", "--only", CASE, "--out", str(out))
    code, _, err = in_process(capsys, "run", *words)
    assert code == exits.CANNOT_TELL
    assert not out.exists()
    assert "results file" not in err


def test_the_same_seed_gives_the_same_records(tmp_path: Path) -> None:
    runs = [
        verdict_on("broken_engines:OffByOne", tmp_path / f"{n}.jsonl", processes=n, only=(f"{OP}:EXP-1",)).run
        for n in (1, 2)
    ]
    one, two = ({r.id: (r.outcome, r.failure) for r in run.records} for run in runs)
    assert one == two

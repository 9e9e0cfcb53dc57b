"""``verispec bisect --case`` over an engine's own repository, and the reason why an endpoint cannot be tested."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from judging import command
from toy_git import ToyRepository

from verispec import exits
from verispec.cli import main
from verispec.engines.registry import resolve
from verispec.errors import VerispecError

EXAMPLE = (Path(__file__).resolve().parents[2] / "examples/own_engine/my_engine.py").read_text()
BROKEN = EXAMPLE.replace("input_ptr == replace_from", "input_ptr != replace_from")
Bisect = Callable[..., subprocess.CompletedProcess[str]]

CASE = "sampler/expand_batch_to_tokens:EXP-2:dtype=float32;cu=int32"


@pytest.fixture
def toy(tmp_path: Path) -> ToyRepository:
    return ToyRepository(tmp_path / "repo")


@pytest.fixture
def bisect(toy: ToyRepository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bisect:
    """Return a function that runs the command beside the repository."""
    monkeypatch.chdir(toy.folder.parent)
    return lambda *words: command(capsys, "bisect", "--repo", str(toy.folder), *words)


def repro_here(name: str, case: str, engine: str, source: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a case as `run_here` does, in this process, whose runs begin with torch imported."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as stop:
        main(["repro", case, "--json", "--engine", f"{engine}@{source}"])
    return subprocess.CompletedProcess((), int(stop.value.code or 0), out.getvalue(), err.getvalue())


def test_the_commit_that_broke_an_engine_is_found(
    toy: ToyRepository, bisect: Bisect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verispec.cli.bisect.run_here", repro_here)
    assert BROKEN != EXAMPLE
    good = toy.commit({"src/mine/__init__.py": "", "src/mine/adapter.py": EXAMPLE})
    toy.commit({"src/mine/adapter.py": EXAMPLE + "import no_such_module\n"}, "does not import")
    culprit = toy.commit({"src/mine/adapter.py": BROKEN}, "turn a comparison round")
    toy.commit({"README.md": "words"})
    found = bisect("--case", CASE, "--good", good, "--engine", "mine.adapter:Engine")
    assert found.returncode == exits.CANNOT_TELL, found.stderr
    assert "cannot be tested: V-ENG-MODULE" in found.stdout
    assert "ModuleNotFoundError: No module named 'no_such_module'" in " ".join(found.stdout.split())

    toy.git("reset", "-q", "--hard", good)
    culprit = toy.commit({"src/mine/adapter.py": BROKEN}, "turn a comparison round")
    toy.commit({"README.md": "words"})
    found = bisect("--case", CASE, "--good", good, "--engine", "mine.adapter:Engine")
    assert found.returncode == exits.GOOD, found.stderr
    assert f"{culprit[:12]} is the first bad revision" in found.stdout
    assert "fails   value: output_ptr[0] is" in found.stdout
    assert f"verispec repro '{CASE}' --engine 'mine.adapter:Engine@{toy.folder}#{culprit}'" in found.stdout
    judged = found.stderr.splitlines()
    assert [line.split()[1] for line in judged] == ["bad", "good", "bad"], "one line per revision without a terminal"


def test_a_parallel_search_runs_the_case_in_several_processes(toy: ToyRepository, bisect: Bisect) -> None:
    good = toy.commit({"mine.py": EXAMPLE})
    commits = [toy.commit({"mine.py": BROKEN if number >= 1 else EXAMPLE, "n": str(number)}) for number in range(3)]
    found = bisect("--case", CASE, "--good", good, "--engine", "mine:Engine", "--parallel", "3", "--json")
    assert found.returncode == exits.GOOD, found.stderr
    report = json.loads(found.stdout)
    assert report["first_bad"]["name"] == commits[1]
    assert report["rounds"] < report["judged"] <= report["tested"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--parallel", "2"), "only cases are tested in parallel"),
        (("--on", "ray"), "only cases are tested in parallel or elsewhere"),
        (("--case", CASE, "--gpus", "1"), "accelerators need a cluster"),
        (("--case", CASE, "--on", "moon"), "there is no place 'moon'"),
    ],
)
def test_what_has_no_place_is_refused(words: tuple[str, ...], said: str, bisect: Bisect) -> None:
    found = bisect("--good", "x", *words)
    assert (found.returncode, said in found.stderr) == (exits.USAGE, True), found.stderr


def test_an_end_without_the_engine_says_why(
    toy: ToyRepository, bisect: Bisect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verispec.cli.bisect.run_here", repro_here)
    good = toy.commit({"README.md": "words"})
    toy.commit({"mine.py": BROKEN})
    found = bisect("--good", good, "--case", CASE, "--engine", "mine:Engine")
    assert found.returncode == exits.CANNOT_TELL
    assert "V-BIS-END-UNKNOWN" in found.stderr
    assert "cannot import the module 'mine'" in found.stderr


def test_a_revision_is_imported_and_nothing_else(toy: ToyRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the same name that is installed or lies in the current folder does not stand in."""
    first = toy.commit({"only_here.py": EXAMPLE})
    toy.commit({"only_here.py": EXAMPLE.replace('"1.0"', '"2.0"')})
    monkeypatch.chdir(toy.folder)
    for name, version in ((f"#{first}", "1.0"), ("", "2.0")):
        code = (
            f"from verispec.engines.registry import resolve\n"
            f"print(resolve('only_here:Engine@{toy.folder}{name}').describe().version)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.stdout.strip() == version, done.stderr
    with pytest.raises(VerispecError) as raised:
        resolve(f"json:dumps@{toy.folder}#{first}")
    assert raised.value.exit_code == exits.CANNOT_TELL

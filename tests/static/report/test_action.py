"""The GitHub action: its script runs here as a runner would run it, and says what the command says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from toy_git import ToyRepository
from toy_kernels import BAD_CALL, CALL, GOOD_TREE

from verispec import exits

ACTION: dict[str, Any] = yaml.safe_load((Path(__file__).parents[3] / "action.yml").read_text())
STEP = ACTION["runs"]["steps"][-1]


@pytest.fixture
def toy(tmp_path: Path) -> ToyRepository:
    """A pull request as it is checked out: a merge whose first parent is the target branch, which has an old error."""
    old = CALL.replace("launch", "old").replace("BLOCK=128", "BLOCK=128, OLD=1")
    repository = ToyRepository(tmp_path / "repo")
    repository.commit({**GOOD_TREE, "pkg/old.py": old})
    repository.git("checkout", "-q", "-b", "request")
    repository.commit({"pkg/caller.py": BAD_CALL})
    repository.git("checkout", "-q", "main")
    repository.commit({"README.md": "words"})
    repository.merge("request")
    return repository


def run(toy: ToyRepository, tmp_path: Path, event: str, **inputs: str) -> subprocess.CompletedProcess[str]:
    given = {name: str(entry["default"]) for name, entry in ACTION["inputs"].items()} | inputs
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    known = {f"${{{{ inputs.{name} }}}}": value for name, value in given.items()}
    known["${{ runner.temp }}/verispec-cache"] = str(tmp_path / "verispec-cache")
    environment |= {name: known[value] for name, value in STEP["env"].items()}
    command = tmp_path / "bin" / "verispec"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m verispec "$@"\n')
    command.chmod(0o755)
    environment |= {"PATH": f"{command.parent}:{environment['PATH']}", "GITHUB_EVENT_NAME": event}
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEP["run"]]
    return subprocess.run(shell, cwd=toy.folder, env=environment, capture_output=True, text=True, check=False)


def test_a_pull_request_is_judged_by_what_it_brings(toy: ToyRepository, tmp_path: Path) -> None:
    done = run(toy, tmp_path, "pull_request")
    assert done.returncode == exits.BAD, done.stderr
    assert done.stdout.count("::error file=pkg/caller.py,") == 1
    assert "pkg/old.py" not in done.stdout
    assert (toy.folder / "verispec.sarif").is_file()


def test_elsewhere_the_whole_tree_is_judged(toy: ToyRepository, tmp_path: Path) -> None:
    done = run(toy, tmp_path, "push")
    assert done.returncode == exits.BAD, done.stderr
    assert "::error file=pkg/old.py," in done.stdout


def test_inputs_are_words_and_never_commands(toy: ToyRepository, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    for name in ("tree", "since", "core"):
        done = run(toy, tmp_path, "push", **{name: f"$(touch {trap}); `touch {trap}`"})
        assert done.returncode == exits.USAGE, done.stdout
    assert not trap.exists()
    assert not any("${{" in step.get("run", "") for step in ACTION["runs"]["steps"])

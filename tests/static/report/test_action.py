"""The GitHub action: its script runs here as a runner would run it, for every event."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from toy_git import ToyRepository
from toy_kernels import BAD_CALL, CALL, GOOD_TREE

from verispec import exits

ROOT = Path(__file__).parents[3]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step.get("name", step.get("uses", "")): step for step in ACTION["runs"]["steps"]}
STEP = STEPS["Check signatures"]
OLD = CALL.replace("launch", "old").replace("BLOCK=128", "BLOCK=128, OLD=1")


@pytest.fixture
def toy(tmp_path: Path) -> ToyRepository:
    """A repository with an old error on main, and a branch `request` with a new one, merged."""
    repository = ToyRepository(tmp_path / "origin")
    repository.commit({"README.md": "first"})
    repository.commit({**GOOD_TREE, "pkg/old.py": OLD})
    repository.git("config", "uploadpack.allowAnySHA1InWant", "true")
    repository.git("checkout", "-q", "-b", "request")
    repository.commit({"pkg/caller.py": BAD_CALL})
    repository.git("checkout", "-q", "main")
    repository.commit({"README.md": "words"})
    repository.merge("request")
    return repository


def clone(toy: ToyRepository, folder: Path, depth: int, ref: str = "main") -> Path:
    options = ["--depth", str(depth)] if depth else []
    subprocess.run(["git", "clone", "-q", *options, "-b", ref, f"file://{toy.folder}", folder], check=True)
    return folder


def run(folder: Path, tmp_path: Path, event: str, **given: str) -> subprocess.CompletedProcess[str]:
    """Run the script with the default inputs and those of `given`, or variables of the event in capitals."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT")}
    command = tmp_path / "verispec"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m verispec "$@"\n')
    command.chmod(0o755)
    for name, value in STEP["env"].items():
        entry = re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", value)
        environment[name] = str(ACTION["inputs"][entry[1]]["default"]) if entry else ""
    environment |= {
        "VERISPEC": str(command),
        "VERISPEC_CACHE_DIR": str(tmp_path / "verispec-cache"),
        "MARKDOWN": str(tmp_path / "verispec.md"),
        "SCRIPT": str(ROOT / "tools/action/check.sh"),
        "GITHUB_EVENT_NAME": event,
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        **given,
    }
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEP["run"]]
    return subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def brings_only_the_new_error(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == exits.BAD, done.stdout + done.stderr
    assert done.stdout.count("::error file=pkg/caller.py,") == 1
    assert "pkg/old.py" not in done.stdout


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_pull_request_is_checked_by_what_it_brings(toy: ToyRepository, tmp_path: Path, depth: int) -> None:
    folder = clone(toy, tmp_path / "work", depth)
    base = toy.git("rev-parse", "main^1")
    brings_only_the_new_error(run(folder, tmp_path, "pull_request", BASE_SHA=base))
    assert (folder / "verispec.sarif").is_file()
    summary = (tmp_path / "summary.md").read_text()
    assert "SIG101" in summary and "fix:" in summary and "pkg/kernels.py" in summary


@pytest.mark.parametrize("depth", [0, 1])
def test_every_event_reports_only_what_is_new(toy: ToyRepository, tmp_path: Path, depth: int) -> None:
    folder = clone(toy, tmp_path / "work", depth)
    base = toy.git("rev-parse", "main^1")
    brings_only_the_new_error(run(folder, tmp_path, "merge_group", QUEUE_SHA=base))
    brings_only_the_new_error(run(folder, tmp_path, "push", BEFORE_SHA=base))
    brings_only_the_new_error(run(folder, tmp_path, "push", BEFORE_SHA="0" * 40))
    brings_only_the_new_error(run(folder, tmp_path, "schedule"))


def test_old_findings_block_nobody(toy: ToyRepository, tmp_path: Path) -> None:
    toy.commit({"README.md": "more words"})
    base = toy.git("rev-parse", "main^1")
    folder = clone(toy, tmp_path / "work", 1)
    for event, variables in (("push", {"BEFORE_SHA": base}), ("schedule", {}), ("merge_group", {"QUEUE_SHA": base})):
        done = run(folder, tmp_path, event, **variables)
        assert done.returncode == exits.GOOD, (event, done.stdout + done.stderr)


def test_a_target_checkout_is_no_pull_request(toy: ToyRepository, tmp_path: Path) -> None:
    toy.git("checkout", "-q", "-b", "target", "main^1")
    folder = clone(toy, tmp_path / "work", 1, "target")
    done = run(folder, tmp_path, "pull_request_target", BASE_SHA=toy.git("rev-parse", "target"))
    assert done.returncode == exits.USAGE
    assert "::error" in done.stdout and "target branch" in done.stdout


def test_a_base_that_cannot_be_fetched(toy: ToyRepository, tmp_path: Path) -> None:
    folder = clone(toy, tmp_path / "work", 1)
    subprocess.run(["git", "remote", "set-url", "origin", "file:///nowhere"], cwd=folder, check=True)
    done = run(folder, tmp_path, "push", BEFORE_SHA=toy.git("rev-parse", "main^1"))
    assert done.returncode == exits.CANNOT_TELL
    assert "fetch-depth" in done.stdout


def test_the_first_commit_is_checked_whole(tmp_path: Path) -> None:
    toy = ToyRepository(tmp_path / "origin")
    toy.commit({**GOOD_TREE, "pkg/old.py": OLD})
    done = run(clone(toy, tmp_path / "work", 0), tmp_path, "push", BEFORE_SHA="0" * 40)
    assert done.returncode == exits.BAD
    assert "::error file=pkg/old.py," in done.stdout


def test_inputs_reach_the_command(toy: ToyRepository, tmp_path: Path) -> None:
    folder = clone(toy, tmp_path / "work", 0)
    assert run(folder, tmp_path, "push", SINCE="", EXCLUDE="pkg/old.py\npkg/caller.py").returncode == exits.GOOD
    subprocess.run(
        [tmp_path / "verispec", "signatures", ".", "--write-baseline", "accepted.json"], cwd=folder, check=False
    )
    assert run(folder, tmp_path, "push", SINCE="", BASELINE="accepted.json").returncode == exits.GOOD
    done = run(folder, tmp_path, "push", SINCE="", CORE="pkg", CORE_SINCE="pkg")
    assert done.returncode == exits.GOOD, done.stdout + done.stderr


def test_inputs_are_words_and_never_commands(toy: ToyRepository, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    for name in ("TREE", "SINCE", "CORE"):
        done = run(toy.folder, tmp_path, "push", **{name: f"$(touch {trap}); `touch {trap}`"})
        assert done.returncode == exits.USAGE, done.stdout
    assert not trap.exists()
    assert not any("${{" in step.get("run", "") for step in ACTION["runs"]["steps"])


def test_the_job_keeps_its_environment() -> None:
    """Actions are pinned by commit, and no step adds to the PATH or replaces the job's Python."""
    for step in ACTION["runs"]["steps"]:
        assert "GITHUB_PATH" not in step.get("run", "")
        if "uses" in step:
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
    assert (
        STEPS[next(name for name in STEPS if name.startswith("actions/setup-python"))]["with"]["update-environment"]
        is False
    )

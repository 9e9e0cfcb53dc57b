"""``verispec doctor``: what works is ok, what is absent is missing, and what is there and fails is broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from judging import command

from verispec import doctor, exits
from verispec.doctor import State

Answer = tuple[int, dict[str, dict[str, Any]]]
"""Exit code, and checks by name."""


def answer(done: subprocess.CompletedProcess[str]) -> Answer:
    return done.returncode, {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def test_this_environment_works(tmp_path: Path) -> None:
    words, environment = ["-m", "verispec", "doctor", "--json"], {**os.environ, "VERISPEC_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, *words], check=False, capture_output=True, text=True, env=environment)
    code, found = answer(done)
    assert code == exits.GOOD
    for name in ("python", "C++ kernels", "torch", "pytest", "cache", "reference"):
        assert found[name]["state"] == "ok", found[name]


@pytest.fixture
def asked_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Return a function that runs the command in this process; of all packages it imports one alone."""

    def run(environment: dict[str, str]) -> Answer:
        monkeypatch.setattr(doctor, "PACKAGES", {"scipy": doctor.PACKAGES["scipy"]})
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return answer(command(capsys, "doctor", "--json"))

    return run


def test_a_package_that_is_there_and_fails_is_broken(tmp_path: Path, asked_here: Callable[..., Answer]) -> None:
    (tmp_path / "scipy").mkdir()
    (tmp_path / "scipy/__init__.py").write_text("raise ImportError('symbol not found: dgemm')")
    code, found = asked_here({"PYTHONPATH": str(tmp_path)})
    assert code == exits.BAD
    assert (found["scipy"]["state"], found["scipy"]["found"]) == ("broken", "ImportError: symbol not found: dgemm")


def test_a_cache_that_cannot_be_written_is_broken(tmp_path: Path, asked_here: Callable[..., Answer]) -> None:
    (tmp_path / "file").write_text("")
    code, found = asked_here({"VERISPEC_CACHE_DIR": str(tmp_path / "file")})
    assert code == exits.BAD
    assert found["cache"]["state"] == "broken"
    assert "VERISPEC_CACHE_DIR" in found["cache"]["advice"]


def test_what_is_not_there_is_missing_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    check = doctor._package("triton", "reference:triton", "pip install triton")
    assert (check.state, check.advice) == (State.MISSING, "pip install triton")
    check = doctor._program("git", ["no-such-git"], "bisect", "install git")
    assert (check.state, check.found) == (State.MISSING, "no no-such-git on PATH")


def test_an_import_that_hangs_is_broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "slow_package.py").write_text("import time; time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(doctor, "START_LIMIT", 0.5)
    assert "takes more than" in str(doctor._import_error("slow_package"))

"""``verispec doctor``: what works is ok, what is absent is missing, and what is there and fails is broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from verispec import doctor, exits
from verispec.doctor import State


def asked(environment: dict[str, str]) -> tuple[int, dict[str, dict[str, Any]]]:
    """Run the command; return its exit code and its checks by name."""
    done = subprocess.run(
        [sys.executable, "-m", "verispec", "doctor", "--json"],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    return done.returncode, {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def test_this_environment_works(tmp_path: Path) -> None:
    code, found = asked({"VERISPEC_CACHE_DIR": str(tmp_path)})
    assert code == exits.GOOD
    for name in ("python", "C++ kernels", "torch", "pytest", "cache", "reference"):
        assert found[name]["state"] == "ok", found[name]


def test_a_package_that_is_there_and_fails_is_broken(tmp_path: Path) -> None:
    (tmp_path / "scipy").mkdir()
    (tmp_path / "scipy/__init__.py").write_text("raise ImportError('symbol not found: dgemm')")
    code, found = asked({"PYTHONPATH": str(tmp_path)})
    assert code == exits.BAD
    assert (found["scipy"]["state"], found["scipy"]["found"]) == ("broken", "ImportError: symbol not found: dgemm")


def test_a_cache_that_cannot_be_written_is_broken(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, found = asked({"VERISPEC_CACHE_DIR": str(tmp_path / "file")})
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

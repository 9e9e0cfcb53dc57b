"""``verispec transplant`` for engines of one's own, and no answer about an engine that a run never used."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from judging import command

from verispec import exits
from verispec.cli import main

Transplant = Callable[..., subprocess.CompletedProcess[str]]
subprocess_run = subprocess.run

ROOT = Path(__file__).resolve().parents[2]
EXPAND = "expand_batch_to_tokens"
CASE = f"sampler/{EXPAND}:EXP-2:dtype=float32;cu=int32"

KERNELS = """
import torch

def expand(output, input, cu_num_tokens, replace_from, replace_to, MAX_NUM_TOKENS, stream=None):
    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    output[: int(counts.sum())] = input.repeat_interleave(counts) + 1
"""

ADAPTER = """
import my_engine
from mine import kernels

def expand_batch_to_tokens(output_ptr, input_ptr, cu_num_tokens_ptr, replace_from, replace_to, MAX_NUM_TOKENS):
    kernels.expand(output_ptr, input_ptr, cu_num_tokens_ptr, replace_from, replace_to, MAX_NUM_TOKENS)

class Engine(my_engine.Engine):
    def op(self, name):
        return expand_batch_to_tokens if name == "expand_batch_to_tokens" else super().op(name)

    def kernel_sites(self):
        return {"expand_batch_to_tokens": "mine.kernels:expand"}
"""

PROGRAM = """
import sys, torch
from mine.kernels import expand
out = torch.full((3,), -7.0)
expand(out, torch.tensor([0.0, 2.0]), torch.tensor([1, 3], dtype=torch.int32), 0, 1, 128)
sys.exit(0 if out.tolist() == [1.0, 2.0, 2.0] else 1)
"""


def run_repro_here(command: Sequence[str], **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run ``verispec repro`` in this process, whose runs begin with torch imported, and any other command as it is."""
    if list(command[1:4]) != ["-m", "verispec", "repro"]:
        return subprocess_run(command, **settings)
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, settings["env"], clear=True),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as stop,
    ):
        main(list(command[3:]))
    return subprocess.CompletedProcess(command, int(stop.value.code or 0), out.getvalue(), err.getvalue())


@pytest.fixture
def transplant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Transplant]:
    """Yield a function that runs the command in a folder with an engine, which it and its programs can import."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/__init__.py").touch()
    (tmp_path / "mine/kernels.py").write_text(KERNELS)
    (tmp_path / "adapter.py").write_text(ADAPTER)
    (tmp_path / "program.py").write_text(PROGRAM)
    path = [str(folder) for folder in (tmp_path, ROOT / "examples/own_engine", ROOT / "tests/faulty_engines")]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    monkeypatch.setattr(sys, "path", [*path, *sys.path])
    monkeypatch.setattr("verispec.kernel_swap.run_command.subprocess.run", run_repro_here)
    yield lambda *words: command(capfd, "transplant", *words)
    for name in ("adapter", "my_engine", "mine", "mine.kernels"):
        sys.modules.pop(name, None)


def test_a_program_of_an_own_engine_names_its_kernel(transplant: Transplant) -> None:
    done = transplant("--engine", "adapter:Engine", "--", sys.executable, "program.py")
    assert done.stdout.startswith(f"culprit: {EXPAND}"), done.stdout + done.stderr
    assert done.returncode == exits.GOOD


def test_a_case_of_an_own_engine_names_its_kernel(transplant: Transplant) -> None:
    done = transplant("--engine", "adapter:Engine", "--case", CASE)
    assert done.stdout.startswith(f"culprit: {EXPAND}"), done.stdout + done.stderr


def test_a_kernel_that_cannot_be_substituted_says_why(transplant: Transplant) -> None:
    Path("mine/kernels.py").write_text(KERNELS.replace("cu_num_tokens", "ends"))
    done = transplant("--engine", "adapter:Engine", "--", sys.executable, "program.py")
    assert done.returncode == exits.CANNOT_TELL
    assert "has no parameter for cu_num_tokens_ptr" in done.stdout


def test_without_sites_a_case_of_one_op_is_answered(transplant: Transplant) -> None:
    done = transplant("--engine", "broken_engines:LosesWrites", "--case", CASE)
    assert done.stdout.startswith(f"culprit: {EXPAND}"), done.stdout + done.stderr


@pytest.mark.parametrize("words", [("--", "true"), ("--case", "sampler/whole_sampler:WS-7:batch=mixed")])
def test_without_sites_anything_else_says_what_to_write(transplant: Transplant, words: tuple[str, ...]) -> None:
    done = transplant("--engine", "broken_engines:LosesWrites", *words)
    assert done.returncode == exits.USAGE
    assert "V-TRP-ENGINE" in done.stderr
    assert "write kernel_sites(self)" in done.stderr


@pytest.mark.parametrize("engine", ["vllm", "adapter:Engine"])
def test_a_run_that_never_used_the_engine_proves_nothing(transplant: Transplant, engine: str) -> None:
    done = transplant("--engine", engine, "--", "true")
    assert done.stdout.startswith("cannot tell: the run never imported the engine"), done.stdout + done.stderr
    assert done.returncode == exits.CANNOT_TELL


def test_an_engine_that_is_not_installed_says_so(transplant: Transplant) -> None:
    done = transplant("--engine", "vllm", "--case", CASE)
    assert done.returncode == exits.CANNOT_TELL
    assert "V-ENG-VLLM" in done.stdout

"""``verispec transplant`` for engines of one's own, and no answer about an engine that a run never used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from verispec import exits

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


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/__init__.py").touch()
    (tmp_path / "mine/kernels.py").write_text(KERNELS)
    (tmp_path / "adapter.py").write_text(ADAPTER)
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def transplant(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(map(str, (folder, ROOT / "examples/own_engine", ROOT / "tests/faulty_engines")))
    command = [sys.executable, "-m", "verispec", "transplant", *words]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path}
    )


def test_a_program_of_an_own_engine_names_its_kernel(mine: Path) -> None:
    done = transplant(mine, "--engine", "adapter:Engine", "--", sys.executable, "program.py")
    assert done.stdout.startswith(f"culprit: {EXPAND}"), done.stdout + done.stderr
    assert done.returncode == exits.BAD


def test_a_case_of_an_own_engine_names_its_kernel(mine: Path) -> None:
    done = transplant(mine, "--engine", "adapter:Engine", "--case", CASE)
    assert done.stdout.startswith(f"culprit: {EXPAND}"), done.stdout + done.stderr


def test_a_kernel_that_cannot_be_substituted_says_why(mine: Path) -> None:
    kernels = mine / "mine/kernels.py"
    kernels.write_text(KERNELS.replace("cu_num_tokens", "ends"))
    done = transplant(mine, "--engine", "adapter:Engine", "--", sys.executable, "program.py")
    assert done.returncode == exits.CANNOT_TELL
    assert "has no parameter for cu_num_tokens_ptr" in done.stdout


def test_without_sites_a_case_of_one_op_is_answered(mine: Path) -> None:
    done = transplant(mine, "--engine", "broken_engines:LosesWrites", "--case", CASE)
    assert done.stdout.startswith(f"culprit: {EXPAND}"), done.stdout + done.stderr


@pytest.mark.parametrize("words", [("--", "true"), ("--case", "sampler/whole_sampler:WS-7:batch=mixed")])
def test_without_sites_anything_else_says_what_to_write(mine: Path, words: tuple[str, ...]) -> None:
    done = transplant(mine, "--engine", "broken_engines:LosesWrites", *words)
    assert done.returncode == exits.USAGE
    assert "V-TRP-ENGINE" in done.stderr
    assert "write kernel_sites(self)" in done.stderr


@pytest.mark.parametrize("engine", ["vllm", "adapter:Engine"])
def test_a_run_that_never_used_the_engine_proves_nothing(mine: Path, engine: str) -> None:
    done = transplant(mine, "--engine", engine, "--", "true")
    assert done.stdout.startswith("cannot tell: the run never imported the engine"), done.stdout + done.stderr
    assert done.returncode == exits.CANNOT_TELL


def test_an_engine_that_is_not_installed_says_so(mine: Path) -> None:
    done = transplant(mine, "--engine", "vllm", "--case", CASE)
    assert done.returncode == exits.CANNOT_TELL
    assert "V-ENG-VLLM" in done.stdout

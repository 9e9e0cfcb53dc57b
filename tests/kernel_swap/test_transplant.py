"""Reference kernels in a running toy vLLM, and the command that names the culprit."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import toy_vllm
from judging import command

from verispec import exits
from verispec.errors import VerispecError
from verispec.kernel_swap import patch_vllm, run_command
from verispec.reference import contracts

Transplant = Callable[..., subprocess.CompletedProcess[str]]

EXPAND = "expand_batch_to_tokens"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(toy_vllm.PROGRAM)
    return path


@pytest.fixture
def transplant(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Transplant:
    """Return a function that runs the command, with a folder `vllm` that its programs import vLLM from."""

    def run(*arguments: str, vllm: Path | None = None) -> subprocess.CompletedProcess[str]:
        if vllm is not None:
            monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(vllm), os.environ.get("PYTHONPATH")])))
        return command(capfd, "transplant", *arguments)

    return run


@pytest.mark.parametrize("generation", ["registry", "runner"])
def test_a_lost_write_is_the_kernels_guilt(
    transplant: Transplant, tmp_path: Path, program: Path, generation: str
) -> None:
    toy = toy_vllm.write(tmp_path / "toy", generation, toy_vllm.LOST_WRITE)
    done = transplant("--engine", "vllm", "--json", "--", sys.executable, str(program), vllm=toy)
    answer = json.loads(done.stdout)
    assert (answer["answer"], answer["ops"]) == ("culprit", [EXPAND]), done.stderr
    assert done.returncode == exits.GOOD


def test_a_dispatcher_that_the_runner_misses_is_cured_too(
    transplant: Transplant, tmp_path: Path, program: Path
) -> None:
    toy = toy_vllm.write(tmp_path / "toy", "runner", toy_vllm.RIGHT, misplaced=True)
    done = transplant("--engine", "vllm", "--op", EXPAND, "--", sys.executable, str(program), vllm=toy)
    assert done.stdout.startswith(f"culprit: {EXPAND}"), done.stderr


def test_a_program_may_look_for_the_engine_before_it_imports_it(
    transplant: Transplant, tmp_path: Path, program: Path
) -> None:
    toy = toy_vllm.write(tmp_path / "toy", "registry", toy_vllm.LOST_WRITE)
    look = "import importlib.util\nassert importlib.util.find_spec('vllm') is not None\n"
    program.write_text(look + toy_vllm.PROGRAM)
    done = transplant("--engine", "vllm", "--op", EXPAND, "--", sys.executable, str(program), vllm=toy)
    assert done.stdout.startswith(f"culprit: {EXPAND}"), done.stderr


def test_a_fault_of_the_caller_stays(transplant: Transplant, tmp_path: Path, program: Path) -> None:
    toy = toy_vllm.write(tmp_path / "toy", "registry", toy_vllm.RIGHT)
    program.write_text(toy_vllm.PROGRAM.replace("[0.5, 1.0, 1.0] else 1", "[0.5, 1.0, 1.0] and False else 1"))
    done = transplant("--engine", "vllm", "--", sys.executable, str(program), vllm=toy)
    assert done.stdout.startswith("stays: "), done.stderr
    assert done.returncode == exits.GOOD


def test_a_program_without_a_fault_says_so(tmp_path: Path, program: Path) -> None:
    toy = toy_vllm.write(tmp_path / "toy", "registry", toy_vllm.RIGHT)
    words = [sys.executable, "-m", "verispec", "transplant", "--engine", "vllm", "--", sys.executable, str(program)]
    environment = {**os.environ, "PYTHONPATH": str(toy)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.startswith("no fault: ")
    assert done.returncode == exits.CANNOT_TELL


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--engine", "reference", "--", "true"), "V-TRP-ENGINE"),
        (("--engine", "vllm"), "V-TRP-COMMAND"),
        (("--engine", "vllm", "--case", "a/b:C-1", "--", "true"), "V-TRP-COMMAND"),
        (("--engine", "vllm", "--op", "nonsense", "--", "true"), "V-TRP-OP"),
        (("--engine", "vllm", "--", "no-such-program"), "V-TRP-COMMAND"),
        (("--engine", "vllm", "--case", "no such case"), "V-TRP-CASE"),
    ],
)
def test_mistakes_end_with_one_clear_line(transplant: Transplant, arguments: tuple[str, ...], code: str) -> None:
    done = transplant(*arguments)
    assert done.returncode == exits.USAGE, done.stderr
    assert done.stderr.startswith(f"verispec: {code} ")
    assert "Traceback" not in done.stderr


def test_an_environments_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nos.environ['RAN'] = 'yes'\n")
    script = "import os, sitecustomize, sys; sys.exit(0 if os.environ.get('RAN') == 'yes' else 3)"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        made = run_command.run([sys.executable, "-c", script], (EXPAND,), 60.0)
    assert (made.good, made.exit_code, made.called) == (True, 0, ())


def test_a_run_that_does_not_end_cannot_be_judged() -> None:
    made = run_command.run([sys.executable, "-c", "import time; time.sleep(600)"], (), 0.5)
    assert (made.good, made.exit_code) == (None, exits.CANNOT_TELL)


def test_a_command_that_cannot_start_is_named(tmp_path: Path) -> None:
    with pytest.raises(VerispecError, match="cannot be started"):
        run_command.run([str(tmp_path)], (), 1.0)


def test_the_reference_kernel_has_the_engines_signature(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(run_command.NOTES, str(tmp_path / "notes"))
    run_command.note.cache_clear()
    theirs = ["output", "input", "cu_num_tokens", "replace_from", "replace_to", "MAX_NUM_TOKENS"]
    kernel = patch_vllm.reference_kernel(contracts.load(EXPAND), theirs)
    assert list(inspect.signature(kernel).parameters) == theirs
    out = torch.full((3,), -7.0)
    counts = torch.tensor([1, 3], dtype=torch.int32)
    kernel(out, torch.tensor([0.5, 0.0]), counts, 0, replace_to=1, MAX_NUM_TOKENS=128)
    assert out.tolist() == [0.5, 1.0, 1.0]
    kernel(out, torch.tensor([2.0, 3.0]), counts, 0, 1, 128)
    assert (tmp_path / "notes").read_text() == f"{EXPAND}\n"


def test_a_function_is_exchanged_where_callers_import_it_from(
    transplant: Transplant, tmp_path: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for a caller that takes the name into its own module; nothing else of the function's module changes."""
    toy = toy_vllm.write(tmp_path / "toy", "registry", toy_vllm.RIGHT)
    (toy / "vllm/v1/sample/ops").mkdir()
    (toy / "vllm/v1/sample/ops/__init__.py").touch()
    (toy / "vllm/v1/sample/ops/topk_topp_sampler.py").write_text(
        "def apply_top_k_top_p(logits, k, p, allow_cpu_sync=False):\n    return logits[:, k.max()]\n\n\ndef other():\n"
        "    return 3\n"
    )
    program.write_text(
        "import torch\n"
        "from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p, other\n"
        "kept = apply_top_k_top_p(torch.ones(0, 5), torch.ones(0, dtype=torch.int32), None, allow_cpu_sync=True)\n"
        "raise SystemExit(0 if kept.shape == (0, 5) and other() == 3 else 1)\n"
    )
    done = transplant("--engine", "vllm", "--", sys.executable, str(program), vllm=toy)
    assert done.stdout.startswith("culprit: apply_top_k_top_p"), done.stderr
    monkeypatch.setenv("PYTHONPATH", str(toy))
    other = run_command.run([sys.executable, str(program)], (EXPAND,), 60.0)
    assert (other.good, other.called) == (False, ()), "with another op asked for, the function is the engine's own"


def test_what_a_version_does_not_pass_is_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Greedy rejection before synthetic mode existed, with a column of bonus tokens as callers have it."""
    monkeypatch.setenv(run_command.NOTES, str(tmp_path / "notes"))
    names = [p.name for p in contracts.load("rejection_greedy_sample").params][:7]
    kernel = patch_vllm.reference_kernel(contracts.load("rejection_greedy_sample"), names)
    out = torch.full((1, 3), -1, dtype=torch.int32)
    drafts, argmax = torch.tensor([4, 5], dtype=torch.int32), torch.tensor([4, 5])
    kernel(out, torch.tensor([2], dtype=torch.int32), drafts, argmax, torch.tensor([[9]]), None, 2)
    assert out.tolist() == [[4, 5, 9]]

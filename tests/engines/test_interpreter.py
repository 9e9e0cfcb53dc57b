"""Kernels run in Triton's interpreter; ``tox -e triton-37`` covers the patches for older releases."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

from verispec.engines import UnsupportedCall, triton_interpreter
from verispec.errors import VerispecError


def test_values_are_as_on_a_gpu_and_no_work_is_lost() -> None:
    """NaN, bools, masks and bfloat16. A launch patches the language once, integers are added once, no table is made."""
    script = Path(__file__).with_name("interpreted_kernel.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seen = [8.0, 2.0, 2.0, 1.0, 1.0, 1.0]
    assert json.loads(done.stdout) == [[*seen, 0.0, 1.0, 1.0], [*seen, 1.0, 1.0, 1.0], True, True, 1, True, 0]


def test_a_pass_that_fails_is_no_fault_of_the_kernel() -> None:
    with pytest.raises(UnsupportedCall, match="use the Triton that this tree asks for"), triton_interpreter.limits():
        raise RuntimeError("PassManager::run failed")


def test_any_other_error_of_a_launch_is_the_kernels() -> None:
    with pytest.raises(RuntimeError, match="illegal memory access"), triton_interpreter.limits():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


def test_an_interpreter_that_cannot_loop_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triton.__version__", "3.6.0")
    monkeypatch.setattr("numpy.__version__", "2.4.0")
    with pytest.raises(VerispecError, match=r"Triton 3\.6\.0 cannot run loops beside NumPy 2\.4\.0") as error:
        triton_interpreter.prepare("reference:triton")
    assert error.value.diagnostic.code == "V-ENG-INTERPRETER"

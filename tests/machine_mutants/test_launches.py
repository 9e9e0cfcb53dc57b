"""The cases that reach a mutated kernel on a GPU."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from verispec.mutants import launches
from verispec.mutants.layers import Layer
from verispec.mutants.model import Mutant

SHARED = """
@triton.jit
def helper(x):
    return x

def host():
    pass
"""
KERNELS = """
from ._shared import helper as borrowed

@triton.jit(debug=True)
def middle(x):
    return borrowed(x)

@triton.jit
def _first_kernel(x):
    middle(x)

@triton.jit
def _second_kernel(x):
    pass
"""


def test_a_helper_is_part_of_the_kernels_that_call_it(tmp_path: Path) -> None:
    paths = [tmp_path / "_shared.py", tmp_path / "op.py"]
    for path, text in zip(paths, (SHARED, KERNELS), strict=True):
        path.write_text(text)
    kernels = launches.kernels_with(paths)
    assert kernels["_shared.helper"] == {"_shared.helper", "op.middle", "op._first_kernel"}
    assert kernels["op._second_kernel"] == {"op._second_kernel"}
    assert launches.kernel_at(paths[0], 4) == "_shared.helper"
    assert launches.kernel_at(paths[0], 7) == ""
    assert launches.kernels_of(paths[1]) == ["op.middle", "op._first_kernel", "op._second_kernel"]


def test_cases_of_a_file_without_ops_are_those_that_launch_its_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For host code, too: it launches them. A file of ops may decide to launch none, so that all its cases count."""
    package = tmp_path / "kernels_of_models"
    package.mkdir()
    for name, text in (("__init__.py", ""), ("_shared.py", SHARED), ("op.py", KERNELS)):
        (package / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    layer = Layer("gpu", "", package.name, ("e2e",))
    baseline = {
        "e2e/first:GEN-1": {"kernels": ["op._first_kernel"]},
        "e2e/second:GEN-1": {"kernels": ["op._second_kernel"]},
        "sampler/op:OP-1": {"kernels": []},
    }

    def cases(file: str, line: int, *ops: str) -> set[str]:
        mutant = Mutant("gpu", file, line, 0, "", "", "", "", 0, ops)
        return launches.cases_of(mutant, layer, baseline, baseline)

    assert cases("op.py", 14) == {"e2e/second:GEN-1"}
    assert cases("_shared.py", 4) == cases("_shared.py", 7) == {"e2e/first:GEN-1"}
    assert cases("op.py", 2) == {"e2e/first:GEN-1", "e2e/second:GEN-1"}
    assert cases("op.py", 2, "op") == {"sampler/op:OP-1"}
    assert cases("op.py", 14, "op") == set()


def test_launches_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    jit = pytest.importorskip("triton.runtime.jit")

    @dataclass
    class Kernel:
        fn: Any

    monkeypatch.setattr(jit.JITFunction, "run", lambda self, *args, **kwargs: (args, kwargs))
    launches.watch()
    launches.launched.clear()
    assert jit.JITFunction.run(Kernel(launches.kernel_at), 1, grid=(2,)) == ((1,), {"grid": (2,)})
    assert launches.launched == {"launches.kernel_at"}

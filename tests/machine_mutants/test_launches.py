"""The cases that reach a mutated kernel on a GPU."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from verispec.mutants import launches

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

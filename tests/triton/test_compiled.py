"""The output of Triton's compiler for all kernels, where the interpreter has other rules, such as none on types."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lane_sums import has_fused_sums
from op_cases import ops

pytest.importorskip("triton")


@pytest.fixture(scope="module")
def results() -> list[dict[str, Any]]:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("compiled.py"), "90"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_every_kernel_compiles(results: list[dict[str, Any]]) -> None:
    assert {r["op"] for r in results} == set(ops())
    assert not [r for r in results if r["problem"]]


@pytest.mark.slow
def test_all_lanes_of_a_warp_hold_the_same_sum(results: list[dict[str, Any]]) -> None:
    """Else which of them is stored is left to chance, and lanes may take different branches."""
    assert not [(r["op"], r["case"], r["uneven"]) for r in results if r["uneven"]]


def test_sums_that_are_fused_over_lanes_are_seen() -> None:
    exchanged = "\tmul.f32 \t%r2, %r8, %r9;\n\tshfl.sync.bfly.b32 \t%r3, %r2, 1, 31, -1;\n"
    assert has_fused_sums(exchanged + "\tfma.rn.f32 \t%r4, %r8, %r9, %r3;\n")
    assert has_fused_sums(exchanged + "\tadd.f32 \t%r4, %r2, %r3;\n")
    assert not has_fused_sums(exchanged + "\tadd.rn.f32 \t%r4, %r2, %r3;\n")
    assert not has_fused_sums(exchanged.replace("mul.f32", "mul.rn.f32") + "\tadd.f32 \t%r4, %r2, %r3;\n")

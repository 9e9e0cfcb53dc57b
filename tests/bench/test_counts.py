"""Counts of the kernels' work: as recorded, and a change of them is reported."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from verispec.reference import contracts

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def compare(kind: str) -> subprocess.CompletedProcess[str]:
    """Compare one kind of counts with the record."""
    command = [sys.executable, str(BENCHMARKS / "counts.py"), "--only", kind]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.counts
def test_triton_kernels_launch_read_and_write_as_recorded() -> None:
    done = compare("launches")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.counts
def test_cpp_kernels_take_the_recorded_instructions() -> None:
    done = compare("instructions")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_count_that_moved_is_reported() -> None:
    compared = runpy.run_path(str(BENCHMARKS / "counts.py"), run_name="counts")["compared"]
    recorded = {"a:plain": {"instructions": 100_000}, "b:plain": {"read": 64, "launches": 1}, "gone:plain": {"read": 1}}
    found = {"a:plain": {"instructions": 101_900}, "b:plain": {"read": 128, "launches": 1}, "new:plain": {"read": 1}}
    assert compared(recorded, found) == [
        "b:plain: 128 read, recorded 64 (+100.0%)",
        "gone:plain: recorded, but there is no such call",
        "new:plain: not recorded",
    ]
    assert compared({"a:plain": {"instructions": 100_000}}, {"a:plain": {"instructions": 102_100}}) == [
        "a:plain: 102,100 instructions, recorded 100,000 (+2.1%)"
    ]
    assert compared({"a:plain": {"instructions": 6000}}, {"a:plain": {"instructions": 6600}}) == []
    assert len(compared({"a:plain": {"instructions": 6000}}, {"a:plain": {"instructions": 6601}})) == 1


def test_every_op_is_recorded_for_both_platforms() -> None:
    kernels = {name for name in contracts.names() if contracts.load(name).tensors}
    recorded = json.loads((BENCHMARKS / "counts.json").read_text())
    for kind in ("instructions", "launches"):
        assert {name.partition(":")[0] for name in recorded[kind]} == kernels

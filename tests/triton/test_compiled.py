"""Triton's compiler accepts every kernel: its interpreter has other rules, such as none on the types of variables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from op_cases import ops

pytest.importorskip("triton")


@pytest.mark.slow
def test_every_kernel_compiles() -> None:
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
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert {r["op"] for r in results} == set(ops())
    assert not [r for r in results if r["problem"]]

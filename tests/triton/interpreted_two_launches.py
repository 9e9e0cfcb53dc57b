"""The child process: the fused ops as large batches run them, a scan of several chunks per program and a draw."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import json

from op_cases import Size, make, variants, verdict
from op_running import run

from verispec.engines import triton_interpreter
from verispec.reference.triton import _fused, op


def results() -> dict[str, str]:
    """Return the problem of each case: three chunks per row, of which a program reads two and another one."""
    _fused.SKIP_BYTES = (0, 0, 0)
    _fused.PROGRAMS = 1
    _fused.MOST_CHUNKS = 2
    problems = {}
    for name in ("verify_greedy", "verify_one_hot", "verify_draft_logits"):
        for variant in variants(name):
            case = make(name, variant, Size(9000, requests=3))
            outputs, misdeeds = run(case, op(name), "cpu")
            problems[f"{name} {variant}"] = verdict(case, outputs) or misdeeds
    return problems


if __name__ == "__main__":
    triton_interpreter.prepare("a test")
    print(json.dumps(results()))

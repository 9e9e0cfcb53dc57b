"""The child process: fused launches that fail after their first programs, each followed by a whole one."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import json
from typing import NoReturn

from op_cases import Case, Size, make, verdict
from op_running import run

from verispec.reference.triton import _fused, _fused_scratch, op

FAILED, NEXT = (make("verify_one_hot", variant, Size(400, requests=9)) for variant in ("nan", "placeholder"))
"""Batches of one size, so that the second call uses the scratch of the first; their rejections differ."""


def cut_off(*_: object) -> NoReturn:
    raise RuntimeError("cut off")


def fails(case: Case) -> bool:
    """Return True if a launch in which the first finished request raises passes the error on."""
    finish = _fused.finish
    _fused.finish = cut_off
    try:
        run(case, op(case.op), "cpu")
    except Exception as error:
        return "cut off" in str(error)
    finally:
        _fused.finish = finish
    return False


def results() -> dict[str, str]:
    """Return the problem of the call after a failure, by the number of launches."""
    problems = {}
    for launches, skip_bytes in (("one", 1 << 30), ("two", 0)):
        _fused.SKIP_BYTES = (skip_bytes,) * 3
        _fused_scratch._kept.clear()
        problem = "" if fails(FAILED) else "the first launch did not fail"
        outputs, misdeeds = run(NEXT, op(NEXT.op), "cpu")
        problems[launches] = problem or verdict(NEXT, outputs) or misdeeds
    return problems


if __name__ == "__main__":
    print(json.dumps(results()))

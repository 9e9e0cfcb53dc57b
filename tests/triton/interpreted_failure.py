"""The child process: fused launches that fail after their first programs, each followed by a whole one."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import json
from dataclasses import replace
from typing import NoReturn
from unittest.mock import patch

import numpy as np
from op_cases import Case, Size, make, verdict
from op_running import run

from verispec.reference.triton import _fused, _fused_limited, _fused_scratch, op

FAILED, NEXT = (make("verify_one_hot", variant, Size(400, requests=9)) for variant in ("nan", "placeholder"))
"""Batches of one size, so that the second call uses the scratch of the first; their rejections differ."""


def with_top_p(case: Case) -> Case:
    top_p = np.full(len(case.arguments["temperature"]), 0.9, dtype=np.float32)
    return replace(case, arguments=case.arguments | {"top_p": top_p})


def cut_off(*_: object) -> NoReturn:
    raise RuntimeError("cut off")


def fails(case: Case) -> bool:
    """Return True if a launch in which the first finished request raises passes the error on."""
    last_steps = ((_fused, "finish"), (_fused, "finish_row"), (_fused_limited, "settle"))
    for module, name in last_steps:
        patch.object(module, name, cut_off).start()
    try:
        run(case, op(case.op), "cpu")
    except Exception as error:
        return "cut off" in str(error)
    finally:
        patch.stopall()
    return False


def results() -> dict[str, str]:
    """Return the problem of the call after a failure, by the launches that the failed one has before its end."""
    problems = {}
    for launches, skip_bytes in (("one", 1 << 30), ("two", 0), ("of top-p", 0)):
        _fused.SKIP_BYTES = (skip_bytes,) * 3
        _fused_scratch._kept.clear()
        failed, following = (FAILED, NEXT) if launches != "of top-p" else (with_top_p(FAILED), with_top_p(NEXT))
        problem = "" if fails(failed) else "the first launch did not fail"
        outputs, misdeeds = run(following, op(following.op), "cpu")
        problems[launches] = problem or verdict(following, outputs) or misdeeds
    return problems


if __name__ == "__main__":
    print(json.dumps(results()))

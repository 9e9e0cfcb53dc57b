"""A child process: its part of the small cases through Triton's interpreter, a line of JSON for each."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator
from itertools import islice

os.environ["TRITON_INTERPRET"] = "1"

from op_cases import MODES, Case, small_cases, verdict
from op_running import cache_holds_what_was_drawn_from, columns, negative_lengths_write_inside, run

from verispec.engines import triton_interpreter
from verispec.reference.triton import op


def results(part: int, parts: int) -> Iterator[dict[str, str]]:
    for case in islice(small_cases(), part, None, parts):
        for layout in layouts(case):
            yield {"op": case.op, "case": f"{case.name};{layout}", "problem": problem(case, layout)}
    if part:
        return
    rounded = cache_holds_what_was_drawn_from(op("gumbel_sample"))
    yield {"op": "gumbel_sample", "case": "narrow_cache", "problem": "" if rounded else "drawn from unrounded logits"}
    inside = negative_lengths_write_inside(op("build_draft_tree"))
    yield {
        "op": "build_draft_tree",
        "case": "negative_length",
        "problem": "" if inside else "wrote outside of its mask",
    }


def layouts(case: Case) -> list[str]:
    """Return every layout for the modes of an op, and the hardest for their alterations, which change values alone."""
    others = ["column"] if columns(case.op) else []
    return ["dense", "strided", *others] if case.name.partition(";")[0] in MODES else ["strided"]


def problem(case: Case, layout: str) -> str:
    try:
        outputs, misdeeds = run(case, op(case.op), "cpu", layout=layout)
    except Exception:
        return traceback.format_exc()
    return verdict(case, outputs) or misdeeds


if __name__ == "__main__":
    triton_interpreter.prepare("a test")
    for result in results(*map(int, sys.argv[1:])):
        print(json.dumps(result), flush=True)

"""Places in an engine where an exception was raised, beside the exception's text."""

from __future__ import annotations

import pytest
from three_reports import PASSING, reports

from verispec.report.raised_place import raised_place
from verispec.run.record import Record

STEP = ("verispec/suites/e2e/_guard.py", 60, "generate"), ("engine/runner.py", 12, "step")


def traceback_of(*frames: tuple[str, int, str], error: str = "IndexError: index 4") -> str:
    lines = (f'  File "{path}", line {line}, in {function}\n    call()\n    ^^^^^^' for path, line, function in frames)
    return "\n".join([*lines, error])


@pytest.mark.parametrize(
    ("frame", "place"),
    [
        (("engine/attention.py", 199, "_visible_slots"), "engine/attention.py:199, in _visible_slots"),
        (("verispec/reference/models/attention.py", 7, "slots"), "verispec/reference/models/attention.py:7, in slots"),
        (("~/.cache/verispec/checkouts/a5f/engine-1.0/engine/a.py", 3, "f"), "engine/a.py:3, in f"),
        (("torch/functional.py", 372, "einsum"), "engine/runner.py:12, in step"),
        (("functools.py", 1001, "__get__"), "engine/runner.py:12, in step"),
        (("c/verispec_extracted_359/engine__ops.py", 818, "op"), "engine/runner.py:12, in step"),
        (("/home/me/checkout/suites/e2e/_guard.py", 64, "told"), "engine/runner.py:12, in step"),
    ],
    ids=["engine", "reference", "checkout", "library", "standard library", "extracted", "suite"],
)
def test_the_place_is_the_innermost_of_the_engines_own_code(frame: tuple[str, int, str], place: str) -> None:
    assert raised_place(traceback_of(*STEP, frame)) == place


def test_an_engine_without_python_frames_has_no_place() -> None:
    assert raised_place(traceback_of(STEP[0], ("verispec/engines/adapters/openvino_genai.py", 145, "generate"))) == ""
    assert raised_place("") == ""


def test_reports_say_where_an_engine_raised() -> None:
    """An index out of range says nothing about which one."""
    text = "IndexError: index 4 is out of bounds for dimension 0 with size 4"
    raised = {"kind": "raised", "message": text, "details": {"traceback": traceback_of(*STEP, error=text)}}
    wrong = {"kind": "relation broken", "message": "3 drafts were accepted"}
    records = [
        Record("e2e/greedy:GEN-14:dtype=float64", "fail", failure=raised, reach="always"),
        Record("e2e/greedy:GEN-14:requests=20", "fail", failure=wrong, reach="always"),
    ]
    for report in reports(*records, *PASSING):
        assert f"Effect: the step raises {text} (at engine/runner.py:12, in step). Clause: GEN-14" in report
        assert report.count("raised at engine/runner.py:12, in step") == 1

"""A report says where an engine raised, hung or crashed, not only in which op."""

from __future__ import annotations

import pytest
from three_reports import PASSING, reports

from verispec.report.causes import fold
from verispec.report.stopped import stopped_at
from verispec.report.text import explained
from verispec.run.record import Record

TRACEBACK = """  File "port.py", line 68, in recovered
    output[:n] = out[:n]
  File "port.py", line 43, in read
    data = self.child.stdout.read(n)
  File "torch/_tensor.py", line 31, in wrapped
    return f(*args)
RuntimeError: no"""
DUMP = """Fatal Python error: Aborted

Stack (most recent call first):
  File "subprocess.py", line 1264 in wait
  File "~/engine/port.py", line 43 in read
  File "~/engine/port.py", line 39 in receive
  File "verispec/judge/_failure.py", line 186 in call_engine
  File "work/suites/sampler/test_op.py", line 346 in test_a_case
  File "_pytest/python.py", line 159 in pytest_pyfunc_call"""
STEP = ("verispec/suites/e2e/_guard.py", 60, "generate"), ("engine/runner.py", 12, "step")


def failing(kind: str, **details: str) -> Record:
    outcome = kind if kind in ("timeout", "crash") else "fail"
    return Record("sampler/op:OPS-1:n=1", outcome, failure={"kind": kind, "message": "no", "details": details})


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (failing("raised", traceback=TRACEBACK), "raised at port.py:43, in read"),
        (failing("timeout", log=DUMP), "hung at ~/engine/port.py:43, in read"),
        (failing("crash", log=DUMP), "the process ended at ~/engine/port.py:43, in read"),
        (failing("crash", log="Killed"), ""),
        (failing("timeout", log=DUMP[DUMP.index('  File "verispec/') :]), ""),
        (failing("value", traceback=TRACEBACK), ""),
        (failing("raised"), ""),
    ],
)
def test_the_engines_innermost_line_is_named(record: Record, words: str) -> None:
    assert stopped_at(record) == words
    (cause,) = fold([record])
    assert [line for line in explained(cause) if line.startswith(("raised at", "hung at", "the process ended at"))] == (
        [words] if words else []
    )


def traceback_of(*frames: tuple[str, int, str], error: str = "IndexError: index 4") -> str:
    lines = (f'  File "{path}", line {line}, in {function}\n    call()\n    ^^^^^^' for path, line, function in frames)
    return "\n".join([*lines, error])


@pytest.mark.parametrize(
    ("frame", "place"),
    [
        (("engine/attention.py", 199, "_visible_slots"), "engine/attention.py:199, in _visible_slots"),
        (("verispec/reference/models/attention.py", 7, "slots"), "verispec/reference/models/attention.py:7, in slots"),
        (("~/.cache/verispec/checkouts/a5f/engine-1.0/engine/a.py", 3, "f"), "engine/a.py:3, in f"),
        (("~/.cache/verispec/checkouts/a5f/engine/a.py", 3, "f"), "engine/a.py:3, in f"),
        (("torch/functional.py", 372, "einsum"), "engine/runner.py:12, in step"),
        (("functools.py", 1001, "__get__"), "engine/runner.py:12, in step"),
        (("c/verispec_extracted_359/engine__ops.py", 818, "op"), "engine/runner.py:12, in step"),
        (("/home/me/checkout/suites/e2e/_guard.py", 64, "told"), "engine/runner.py:12, in step"),
    ],
    ids=["engine", "reference", "release", "checkout", "library", "standard library", "extracted", "suite"],
)
def test_frames_of_others_are_left_out(frame: tuple[str, int, str], place: str) -> None:
    assert stopped_at(failing("raised", traceback=traceback_of(*STEP, frame))) == f"raised at {place}"


def test_an_engine_without_python_frames_has_no_place() -> None:
    adapter = ("verispec/engines/adapters/openvino_genai.py", 145, "generate")
    assert stopped_at(failing("raised", traceback=traceback_of(STEP[0], adapter))) == ""


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

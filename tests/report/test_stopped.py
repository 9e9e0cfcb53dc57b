"""A report says where an engine raised, hung or crashed, not only in which op."""

from __future__ import annotations

import pytest

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
  File "~/work/port.py", line 43 in read
  File "~/work/port.py", line 39 in receive
  File "verispec/judge/_failure.py", line 186 in call_engine
  File "work/suites/sampler/test_op.py", line 346 in test_a_case"""


def failing(kind: str, **details: str) -> Record:
    outcome = kind if kind in ("timeout", "crash") else "fail"
    return Record("sampler/op:OPS-1:n=1", outcome, failure={"kind": kind, "message": "no", "details": details})


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (failing("raised", traceback=TRACEBACK), "raised at port.py:43, in read"),
        (failing("timeout", log=DUMP), "hung at ~/work/port.py:43, in read"),
        (failing("crash", log=DUMP), "the process ended at ~/work/port.py:43, in read"),
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

"""The line of a revision has room for the reason, which long paths before it took."""

from __future__ import annotations

import pytest

from verispec.cli.bisect import brief

GONE = "ModuleNotFoundError: No module named 'gone'"
LONG = f"--engine port:Engine@/a/{'b' * 150}#1234567"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (
            f"V-ENG-MODULE {LONG}: cannot import the module 'port'\n  cause: {GONE}\n  hint:  an engine is module:attr",
            f"V-ENG-MODULE cannot import the module 'port': {GONE}",
        ),
        (f"V-ENG-START {LONG}: it does not start", f"V-ENG-START {LONG}: it does not start"),
        ("value: output[0] is 1,\n  expected 2", "value: output[0] is 1, expected 2"),
    ],
)
def test_a_reason_is_one_line_with_its_cause(reason: str, words: str) -> None:
    assert brief(reason) == words

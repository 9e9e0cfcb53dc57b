"""Parameters that tell failing cases from passing ones, and cases without a result."""

from __future__ import annotations

import pytest
from failing_records import OP

from verispec.report.causes import gaps
from verispec.report.separation import separation
from verispec.run.record import Record


def test_a_value_of_several_words_is_quoted() -> None:
    rows = [{"row": "equal"}, {"row": "huge"}, {"row": "all nan q"}]
    assert separation(rows, [{"row": "zero"}]) == "fails for row=equal, huge or 'all nan q'; passes for row=zero"


def test_gaps_are_folded_by_reason_and_broken_tests_come_first() -> None:
    records = [
        Record(f"{OP}:RRS-12:k=1", "unsupported", reason="no synthetic mode"),
        Record("sampler/rejection_greedy_sample:RGS-9", "unsupported", reason="no synthetic mode (given k = 3)"),
        Record(f"{OP}:RRS-1", "error", reason="KeyError: 3"),
        Record(f"{OP}:RRS-2", "inconclusive", reason="too few draws"),
    ]
    assert [(g.outcome, g.subjects) for g in gaps(records)] == [
        ("error", ("rejection_random_sample",)),
        ("inconclusive", ("rejection_random_sample",)),
        ("unsupported", ("rejection_greedy_sample", "rejection_random_sample")),
    ]


def test_a_reason_keeps_the_value_at_its_end() -> None:
    def told(*reasons: str) -> list[str]:
        records = [Record(f"e2e/trees:GEN-44:k={n}", "unsupported", reason=r) for n, r in enumerate(reasons)]
        return [gap.reason for gap in gaps(records)]

    refused = "speculative_token_tree: not implemented, got"
    assert told(f"{refused} ((0,), (0, 0))", f"{refused} ((0,), (1,))") == [f"{refused} ((0,), (0, 0)) and others"]
    assert told("no trees (given k = 3)", "no trees (given k = 4)") == ["no trees"]


def params(*texts: str) -> list[dict[str, str]]:
    return [dict(pair.split("=") for pair in text.split()) for text in texts]


@pytest.mark.parametrize(
    ("failing_", "passing_", "said"),
    [
        (["d=a k=1", "d=a k=2"], ["d=b k=1", "d=c k=2"], "fails for d=a; passes for d=b or c"),
        (["d=a k=1", "d=b k=2"], ["d=a k=2", "d=b k=1"], "fails for d=a k=1, d=b k=2; passes for d=a k=2, d=b k=1"),
        (["d=a k=1", "d=a k=2"], ["d=a k=1", "d=b k=2"], "fails only for d=a"),
        (["d=a", "d=b"], ["d=a", "d=b"], ""),
        (["d=a"] * 9 + ["d=b"], ["d=a"] + ["d=b"] * 9, "9 of them for d=a"),
        (["d=a"] * 9 + ["d=b"], ["d=a"] + ["d=b"] * 8, ""),
        (["d=a"] * 8 + ["d=b"] * 2, ["d=a"] + ["d=b"] * 18, ""),
        (["d=a", "e=b"], ["d=b"], ""),
        (["d=a"], ["d=b"], ""),
        (["d=a k=1", "d=a k=2"], [], ""),
        (["n=23", "n=4"], ["n=69", "n=1", "n=2"], "fails for n=4 or 23; passes for n=1, 2 or 69"),
        (["n=23 m=a c=x", "n=23 m=b c=x"], ["n=69 m=a c=x", "n=1 m=a"], "fails for c=x and n=23; passes for n=1 or 69"),
        (["d=a k=1", "d=a k=2"], [f"d={n} k=1" for n in range(9)], "fails for d=a; passes for 9 other values of d"),
    ],
    ids=[
        "one parameter",
        "two",
        "at times",
        "nothing",
        "mostly",
        "not seldom enough",
        "too few",
        "no common name",
        "one case",
        "nothing passes",
        "sorted numbers",
        "a size beside words",
        "many values",
    ],
)
def test_separation(failing_: list[str], passing_: list[str], said: str) -> None:
    assert separation(params(*failing_), params(*passing_)) == said

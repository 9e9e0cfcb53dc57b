"""The difference between two runs, case by case, and the exit code that it comes to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from run_headers import header

from verispec import exits
from verispec.report.diff import CLASSES, compare, markdown_lines, text_lines
from verispec.report.html import as_html
from verispec.report.verdict import summarise
from verispec.run.record import Record
from verispec.run.runfile import Run

CASE = "sampler/expand_batch_to_tokens:EXP-2:dtype=float32"
HEADER = header(engine={"asked": "mine", "name": "mine"})


def record(outcome: str, message: str = "output_ptr[3] is 1, expected 2", observed: str = "") -> Record:
    failing = "fail" in (outcome, observed)
    return Record(CASE, outcome, observed=observed, failure={"kind": "value", "message": message} if failing else {})


def run(*records: Record, complete: bool = True) -> Run:
    return Run(HEADER, records, {"complete": complete})


PASS, FAIL = record("pass"), record("fail")
UNSUPPORTED = Record(CASE, "unsupported", reason="not yet")


@pytest.mark.parametrize(
    ("base", "head", "expected", "code"),
    [
        (PASS, PASS, "", exits.GOOD),
        (PASS, FAIL, "new", exits.BAD),
        (None, FAIL, "new", exits.BAD),
        (UNSUPPORTED, FAIL, "new", exits.BAD),
        (FAIL, PASS, "fixed", exits.GOOD),
        (FAIL, FAIL, "known", exits.GOOD),
        (FAIL, record("fail", "output_ptr[7] is 3, expected 9"), "known", exits.GOOD),
        (FAIL, record("fail", "the call raised ValueError"), "changed", exits.GOOD),
        (FAIL, record("xfail", observed="fail"), "known", exits.GOOD),
        (record("xfail", observed="fail"), PASS, "fixed", exits.GOOD),
        (PASS, UNSUPPORTED, "lost", exits.CANNOT_TELL),
        (FAIL, UNSUPPORTED, "lost", exits.CANNOT_TELL),
        (PASS, None, "lost", exits.CANNOT_TELL),
        (PASS, Record(CASE, "inconclusive", reason="too few"), "lost", exits.CANNOT_TELL),
        (PASS, Record(CASE, "error", reason="KeyError"), "lost", exits.CANNOT_TELL),
        (UNSUPPORTED, UNSUPPORTED, "", exits.GOOD),
        (UNSUPPORTED, None, "", exits.GOOD),
        (None, PASS, "", exits.GOOD),
    ],
)
def test_each_case_is_in_one_class(base: Record | None, head: Record | None, expected: str, code: int) -> None:
    found = compare(run(*filter(None, [base])), run(*filter(None, [head])))
    assert [name for name in CLASSES if getattr(found, name)] == [expected][: bool(expected)]
    assert found.exit_code == code


def test_runs_without_a_case_in_common_cannot_be_compared() -> None:
    """The wrong file, or another selection, is no good result."""
    other = replace(PASS, id="sampler/other:OTH-1")
    found = compare(
        run(PASS, FAIL),
        replace(run(other), header=HEADER | {"selection": {**HEADER["selection"], "only": ["sampler/other"]}}),
    )
    assert not any(getattr(found, name) for name in CLASSES)
    assert found.exit_code == exits.CANNOT_TELL == found.to_json()["exit"]
    assert "no case is in both runs: nothing was compared" in " ".join(text_lines(found))
    assert "No case is in both runs" in " ".join(markdown_lines(found))
    assert "No case is in both runs" in as_html([summarise(found.head)], diff=found)


def test_the_number_of_compared_cases_is_told() -> None:
    found = compare(run(PASS, replace(PASS, id=f"{CASE};n=1")), run(PASS))
    assert found.shared == found.to_json()["shared"] == 1
    assert "1 case is in both runs, of 2 in the older and 1 in the newer" in " ".join(text_lines(found))


def test_a_run_that_is_not_complete_cannot_be_good() -> None:
    assert compare(run(PASS), run(PASS, complete=False)).exit_code == exits.CANNOT_TELL
    assert compare(run(PASS), run(FAIL, complete=False)).exit_code == exits.BAD


def test_new_failures_are_folded_by_cause() -> None:
    others = [replace(FAIL, id=f"{CASE};n={n}") for n in range(5)]
    found = compare(run(replace(others[0], outcome="pass", failure={})), run(*others))
    (cause,) = found.causes
    assert len(cause.cases) == 5
    text = "\n".join(text_lines(found))
    assert "     5 new" in text
    assert f"verispec repro '{CASE};n=0' --engine mine" in text
    assert found.exit_code == exits.BAD
    assert "### verispec: 5 new failing cases, 0 fixed" in "\n".join(markdown_lines(found))


def test_the_page_shows_the_difference_first() -> None:
    found = compare(run(PASS), run(FAIL))
    page = as_html([summarise(found.base), summarise(found.head)], diff=found)
    assert page.index('id="difference"') < page.index('id="causes"')
    assert "1 new: fail now and did not fail before" in page


def selected(**selection: Any) -> dict[str, Any]:
    return {**HEADER, "selection": {**HEADER["selection"], **selection}}


@pytest.mark.parametrize(
    ("selection", "lost"),
    [
        ({"only": ["sampler/expand_batch_to_tokens"]}, True),
        ({"only": [CASE], "exact": True}, True),
        ({"only": ["sampler/philox"]}, False),
        ({"suites": ["sampler"]}, True),
        ({"suites": ["/home/me/e2e"]}, False),
        ({"smoke": True}, False),
    ],
)
def test_a_case_that_was_not_asked_for_is_not_lost(selection: dict[str, Any], lost: bool) -> None:
    other = Record("sampler/philox:PHX-1", "pass")
    found = compare(run(PASS), Run(selected(**selection), (other,), {"complete": True}))
    assert bool(found.lost) is lost


def test_new_notes_may_be_left_out_of_the_exit_code() -> None:
    assert compare(run(PASS), run(FAIL), errors_only=True).exit_code == exits.GOOD
    reached = replace(FAIL, reach="every step")
    assert compare(run(PASS), run(reached), errors_only=True).exit_code == exits.BAD


def test_two_runs_of_one_engine_are_told_apart_by_their_start() -> None:
    older = replace(run(PASS), header={**HEADER, "started": "2026-11-29T02:30:11+00:00"})
    newer = replace(run(FAIL), header={**HEADER, "started": "2026-11-30T02:31:12+00:00"})
    found = compare(older, newer)
    base, head, *_ = text_lines(found, 200)
    assert (base[-25:], head[-25:]) == (", started 2026-11-29 02:30"[-25:], ", started 2026-11-30 02:31"[-25:])
    assert "started 2026-11-29 02:30` to `" in "\n".join(markdown_lines(found))
    other = replace(newer, header={**newer.header, "engine": {**HEADER["engine"], "version": "2"}})
    assert "started" not in "\n".join(text_lines(compare(older, other)))

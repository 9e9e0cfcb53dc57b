"""Known failures: the effect of an entry on an outcome, and errors for a wrong file."""

from __future__ import annotations

from pathlib import Path

import pytest

from verispec import exits
from verispec.errors import VerispecError
from verispec.expectations import Expectation, apply, load, unmatched
from verispec.report.verdict import summarise
from verispec.run.record import Record
from verispec.run.runfile import Run, without_expectations

ENTRY = """
[[expect]]
case = "sampler/x:EXP-2"
outcome = "fail"
issue = "https://example.org/1"
reason = "known"
"""
FAILS = Expectation(1, "sampler/x:EXP-2", "fail", "https://example.org/1")


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "expectations.toml"
    path.write_text(text)
    return path


def test_entries_are_read_in_order(tmp_path: Path) -> None:
    entries = load(write(tmp_path, ENTRY + ENTRY.replace("EXP-2", "EXP-3")))
    assert [(e.number, e.case, e.outcome, e.issue, e.reason) for e in entries] == [
        (1, "sampler/x:EXP-2", "fail", "https://example.org/1", "known"),
        (2, "sampler/x:EXP-3", "fail", "https://example.org/1", "known"),
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("outcome = ", "outcom = "), "entry 1: unknown key 'outcom'"),
        (('outcome = "fail"', 'outcome = "pass"'), "entry 1: outcome 'pass' is unknown"),
        (('outcome = "fail"\n', ""), "entry 1: outcome must be a non-empty text, got nothing"),
        (('issue = "https://example.org/1"\n', ""), "entry 1: issue must be a non-empty text, got nothing"),
        (("https://example.org/1", "later"), "entry 1: issue must be a link, got 'later'"),
        (("https://example.org/1", ""), "entry 1: issue must be a non-empty text, got ''"),
        (('case = "sampler/x:EXP-2"', "case = 3"), "entry 1: case must be a non-empty text, got 3"),
        (('"known"', "1"), "entry 1: reason must be a non-empty text, got 1"),
        (("[[expect]]", "[expect]"), "expect is not a list of entries"),
        (("[[expect]]", "[[expected]]"), "unknown key 'expected'"),
        (("[[expect]]", "expect = [1]\n[x]"), "unknown key 'x'"),
        (("]]", ""), "the known-failures file is not TOML"),
    ],
)
def test_a_wrong_file_is_said_to_be(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    path = write(tmp_path, ENTRY.replace(*change, 1))
    with pytest.raises(VerispecError) as caught:
        load(path)
    assert caught.value.diagnostic.code == "V-EXPECT"
    assert caught.value.diagnostic.where == str(path)
    assert said in caught.value.diagnostic.message
    assert caught.value.exit_code == exits.USAGE


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(VerispecError, match="cannot read"):
        load(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    ("expected", "seen", "outcome"),
    [
        ("fail", "fail", "xfail"),
        ("fail", "pass", "xpass"),
        ("fail", "crash", "crash"),
        ("fail", "unsupported", "unsupported"),
        ("crash", "crash", "xfail"),
        ("timeout", "timeout", "xfail"),
        ("unsupported", "unsupported", "unsupported"),
        ("unsupported", "pass", "xpass"),
        ("unsupported", "fail", "fail"),
        ("varies", "fail", "xfail"),
        ("varies", "crash", "xfail"),
        ("varies", "timeout", "xfail"),
        ("varies", "pass", "pass"),
        ("varies", "unsupported", "unsupported"),
        ("varies", "inconclusive", "inconclusive"),
    ],
)
def test_what_becomes_of_an_outcome(expected: str, seen: str, outcome: str) -> None:
    entry = Expectation(1, "sampler/x:EXP-2", expected, "https://example.org/1")
    record = Record("sampler/x:EXP-2:b=1", seen)
    under = apply([entry], record)
    assert under.outcome == outcome
    assert without_expectations(under) == record
    assert bool(under.issue) == (outcome in ("xfail", "xpass") or seen == expected)


def test_other_cases_are_left_alone() -> None:
    record = Record("sampler/x:EXP-21", "fail")
    assert apply([FAILS], record) == record


def test_an_entry_that_selects_nothing_is_unmatched() -> None:
    assert unmatched([FAILS], ["sampler/x:EXP-1", "sampler/x:EXP-20"]) == (FAILS,)
    assert unmatched([FAILS], ["sampler/x:EXP-2:b=1"]) == ()


@pytest.mark.parametrize(
    ("outcomes", "footer", "code"),
    [
        (["pass", "xfail"], {}, exits.GOOD),
        (["pass", "xpass"], {}, exits.BAD),
        (["pass", "fail"], {}, exits.BAD),
        (["pass"], {"unmatched": [FAILS.to_json()]}, exits.BAD),
        (["pass", "crash"], {}, exits.BAD),
        (["pass", "timeout"], {}, exits.BAD),
        (["pass", "unsupported"], {}, exits.GOOD),
        (["pass", "inconclusive"], {}, exits.GOOD),
        (["pass", "error"], {}, exits.CANNOT_TELL),
        (["fail", "error"], {}, exits.BAD),
        (["unsupported", "inconclusive"], {}, exits.CANNOT_TELL),
        (["xfail"], {}, exits.GOOD),
        ([], {}, exits.CANNOT_TELL),
        (["pass"], {"complete": False}, exits.CANNOT_TELL),
        (["fail"], {"complete": False}, exits.BAD),
    ],
)
def test_the_exit_code(outcomes: list[str], footer: dict[str, object], code: int) -> None:
    records = tuple(
        Record(f"sampler/x:EXP-{n}", outcome, observed={"xfail": "fail", "xpass": "pass"}.get(outcome, ""))
        for n, outcome in enumerate(outcomes, 1)
    )
    assert summarise(Run({}, records, {"complete": True, **footer})).exit_code() == code


def test_notes_may_be_left_out_of_the_exit_code() -> None:
    note = Record("sampler/x:EXP-1", "fail", failure={"kind": "value", "message": ""})
    error = Record("sampler/x:EXP-2", "fail", failure={"kind": "raised", "message": "E"}, reach="always")
    whole = {"complete": True}
    assert (
        summarise(Run({}, (note, Record("sampler/x:EXP-3", "pass")), whole)).exit_code(errors_only=True) == exits.GOOD
    )
    assert summarise(Run({}, (note, error), whole)).exit_code(errors_only=True) == exits.BAD

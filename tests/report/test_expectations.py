"""A proposal of known failures: few patterns, never one that matches a passing case, and no entry without a link."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from verispec.cases import selects
from verispec.errors import VerispecError
from verispec.expectations import Expectation, apply, load, require_proposal
from verispec.report.expectations import patterns, proposal
from verispec.run.record import Record
from verispec.run.runfile import Run

OP = "sampler/expand_batch_to_tokens"
LINK = "https://example.org/1"


def case(clause: int, outcome: str = "fail", **params: object) -> Record:
    name = f"{OP}:EXP-{clause}:" + ";".join(f"{key}={value}" for key, value in params.items())
    failure = {"kind": "value", "message": 'output_ptr[0] is "3", expected 4'} if outcome == "fail" else {}
    return Record(name, outcome, failure=failure)


def run(*records: Record, entries: tuple[Expectation, ...] = (), **selection: Any) -> Run:
    header = {
        "expectations": [entry.to_json() for entry in entries],
        "selection": {"only": [], "suites": [], "smoke": False, **selection},
    }
    return Run(header, tuple(apply(entries, record) for record in records), {"complete": True})


def entries_of(text: str) -> list[tuple[str, str, str]]:
    return [(e["case"], e["outcome"], e["issue"]) for e in tomllib.loads(text).get("expect", [])]


def test_one_pattern_stands_for_the_failing_dtype() -> None:
    failing = [case(1, dtype="float32", b=b) for b in range(5)]
    passing = [case(1, "pass", dtype="int64", b=b) for b in range(5)]
    found = patterns([r.id for r in failing], "fail", [*failing, *passing])
    assert found == (f"{OP}:*dtype=float32*",)


@pytest.mark.parametrize("outcome", ["pass", "crash", "inconclusive"])
def test_no_pattern_matches_a_case_with_another_result(outcome: str) -> None:
    records = [case(n % 3 + 1, "fail" if n % 4 else outcome, n=n, dtype="f32" if n % 2 else "f16") for n in range(40)]
    failing = [r.id for r in records if r.outcome == "fail"]
    found = patterns(failing, "fail", records)
    matched = {r.id for r in records if any(selects(pattern, r.id) for pattern in found)}
    assert matched == set(failing)
    assert len(found) == 11, "one for all of f32, and one for each of f16, which also passes"


def test_a_failing_case_whose_id_begins_a_passing_one_is_named_with_its_end() -> None:
    failing, passing = Record(f"{OP}:EXP-1", "fail"), Record(f"{OP}:EXP-1:b=1", "pass")
    assert patterns([failing.id], "fail", [failing, passing]) == (f"{failing.id}$",)
    assert [selects(f"{OP}:EXP-1$", r.id) for r in (failing, passing)] == [True, False]
    assert [selects("*:EXP-?$", r.id) for r in (failing, passing)] == [True, False]


@pytest.mark.parametrize(
    ("pattern", "selected"),
    [
        ("*:EXP-1", [True, True, False]),
        ("*/*:EXP-1", [True, True, False]),
        ("sampler/*", [True, True, True]),
        ("*:EXP-1:", [False, True, False]),
        ("*:EXP-1*", [True, True, True]),
        ("*:EXP-1:b", [False, False, False]),
    ],
)
def test_a_glob_ends_with_a_whole_part(pattern: str, selected: list[bool]) -> None:
    ids = [f"{OP}:EXP-1", f"{OP}:EXP-1:b=1;c=2", f"{OP}:EXP-10:b=1"]
    assert [selects(pattern, name) for name in ids] == selected


def test_new_failures_have_no_link_yet_and_cannot_be_used_so(tmp_path: Path) -> None:
    text = proposal(run(case(1, dtype="float32"), case(1, "pass", dtype="int64")))
    assert [(outcome, issue) for _, outcome, issue in entries_of(text)] == [("fail", "")]
    assert "# Fill in each empty issue" in text
    path = tmp_path / "proposal.toml"
    path.write_text(text)
    with pytest.raises(VerispecError, match="issue must be a non-empty text"):
        load(path)
    path.write_text(text.replace('issue = ""', f'issue = "{LINK}"'))
    assert load(path)[0].reason == 'output_ptr[0] is "3", expected 4'


def test_entries_that_hold_stay_and_stale_ones_go_or_are_narrowed() -> None:
    entries = (
        Expectation(1, f"{OP}:EXP-1", "fail", LINK + "/holds", "why"),
        Expectation(2, f"{OP}:EXP-2", "fail", LINK + "/stale"),
        Expectation(3, f"{OP}:EXP-3", "fail", LINK + "/half"),
        Expectation(4, f"{OP}:EXP-9", "fail", LINK + "/unmatched"),
    )
    records = (case(1, b=1), case(2, "pass", b=1), case(3, b=1, d="x"), case(3, "pass", b=2, d="y"))
    text = proposal(run(*records, entries=entries))
    assert entries_of(text) == [
        (f"{OP}:EXP-1", "fail", LINK + "/holds"),
        (f"{OP}:*d=x*", "fail", LINK + "/half"),
    ]
    assert f"left out: 1 case of it passes now ({LINK}/stale)" in text
    assert f"left out: none of its cases has this outcome ({LINK}/unmatched)" in text
    assert "Fill in" not in text, "each issue has its link"


@pytest.mark.parametrize("seen", ["pass", "fail"])
def test_an_entry_whose_failure_depends_on_chance_stays(seen: str) -> None:
    entry = Expectation(1, f"{OP}:EXP-1", "varies", LINK)
    text = proposal(run(case(1, seen, b=1), case(1, "pass", b=2), entries=(entry,)))
    assert entries_of(text) == [(f"{OP}:EXP-1", "varies", LINK)]


def test_a_selection_keeps_entries_that_it_did_not_run() -> None:
    entry = Expectation(1, f"{OP}:EXP-9", "fail", LINK)
    text = proposal(run(case(1, "pass"), entries=(entry,), only=[f"{OP}:EXP-1"]))
    assert entries_of(text) == [(f"{OP}:EXP-9", "fail", LINK)]


def test_a_proposal_replaces_nothing_else(tmp_path: Path) -> None:
    known = tmp_path / "known.toml"
    known.write_text(proposal(run(case(1))))
    require_proposal(known, None)
    require_proposal(tmp_path / "new.toml", known)
    with pytest.raises(VerispecError, match="would replace the file of --expect"):
        require_proposal(known, known)
    for name, content in (("pyproject.toml", "[project]\n"), ("notes.txt", "my notes")):
        (tmp_path / name).write_text(content)
        with pytest.raises(VerispecError, match="is not a file of known failures"):
            require_proposal(tmp_path / name, None)
    with pytest.raises(VerispecError, match="folder of the proposal does not exist"):
        require_proposal(tmp_path / "nowhere/new.toml", None)


def test_a_proposal_compares_each_case_with_each_entry_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of hundreds of entries and runs of thousands of cases are usual."""
    records = [case(n // 10, n=n) for n in range(200)]
    entries = tuple(Expectation(n + 1, f"{OP}:EXP-{n}", "fail", LINK) for n in range(20))
    compared: list[str] = []

    def counted(pattern: str, name: str) -> bool:
        compared.append(pattern)
        return selects(pattern, name)

    known = run(*records, entries=entries)
    monkeypatch.setattr("verispec.report.expectations.selects", counted)
    assert len(entries_of(proposal(known))) == 20
    assert 0 < len(compared) <= len(records) * len(entries)

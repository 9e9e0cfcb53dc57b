"""Every fault is caught by the clause that names it, by what it computes and not by a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from caught import CAUGHT
from engine_runs import records_of

from verispec.judge import Kind
from verispec.reference import contracts


def clause_of(case: str) -> str:
    return case.split(":")[1]


@pytest.mark.slow
@pytest.mark.parametrize("fault", CAUGHT)
def test_a_fault_is_caught_by_what_it_computes(fault: str, tmp_path: Path) -> None:
    records = records_of(fault, CAUGHT[fault], tmp_path)
    assert {case: told(records.get(case)) for case in CAUGHT[fault]} == dict.fromkeys(CAUGHT[fault], "caught")


def told(record: dict[str, Any] | None) -> str:
    """Return "caught" for a failure that shows a wrong result, else how the case ended instead."""
    if record is None:
        return "no such case"
    if record["outcome"] != "fail":
        return f"{record['outcome']}: {record.get('reason', '')}"
    failure = record["failure"]
    return f"crash: {failure['message']}" if failure["kind"] == Kind.RAISED else "caught"


def test_a_crash_does_not_count() -> None:
    crash = {"outcome": "fail", "failure": {"kind": "raised", "message": "IndexError: 7"}}
    assert told(crash) == "crash: IndexError: 7"
    assert told({"outcome": "crash"}) == "crash: "
    assert told({"outcome": "fail", "failure": {"kind": "value", "message": "4"}}) == "caught"


@pytest.mark.slow
def test_the_reference_passes_what_catches_the_faults(tmp_path: Path) -> None:
    cases = sorted({case for cases in CAUGHT.values() for case in cases if clause_of(case) != "GEN-36"})
    records = records_of("reference", cases, tmp_path)
    assert {case: records[case]["outcome"] for case in cases} == dict.fromkeys(cases, "pass")


@pytest.mark.slow
def test_an_engine_that_takes_async_scheduling_and_is_right_passes(tmp_path: Path) -> None:
    """The reference refuses the option, so that a runner without a fault stands in for it."""
    cases = [case for cases in CAUGHT.values() for case in cases if clause_of(case) == "GEN-36"]
    records = records_of("general_mutants:async_accepted", cases, tmp_path)
    assert {case: records[case]["outcome"] for case in cases} == dict.fromkeys(cases, "pass")


@pytest.mark.slow
def test_ranks_that_are_right_pass_without_float64(tmp_path: Path) -> None:
    case = "ranks:GEN-40:draft=none;sampling=seeded"
    assert records_of("rank_engines:right_in_float32", [case], tmp_path)[case]["outcome"] == "pass"


def test_every_clause_of_generation_has_a_fault_that_it_catches() -> None:
    caught = {clause_of(case) for cases in CAUGHT.values() for case in cases}
    assert [clause.id for clause in contracts.load("generation").clauses if clause.id not in caught] == []

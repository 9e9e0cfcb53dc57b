"""Causes that tell more than others: the fault by its name, where it shows, and what triggers it."""

from __future__ import annotations

from typing import Any

from test_causes import OP, failing, passing

from verispec.report.causes import fold
from verispec.report.text import facts
from verispec.run.record import ALTERNATIVELY, AS_IF, FAULT, LOCATED, Record


def test_a_law_that_names_its_fault_is_one_cause_with_one_that_does_not() -> None:
    named = [
        failing(f"{OP}:RRS-{clause}:draft=present", "law", failure={"details": {FAULT: "top-p came first"}})
        for clause in (7, 8)
    ]
    assert [cause.clauses for cause in fold(named)] == [("RRS-7", "RRS-8")]
    unnamed = failing(f"{OP}:RRS-8:draft=absent", "law", "G = 3")
    assert sorted(cause.clauses for cause in fold([*named, unnamed])) == [("RRS-7",), ("RRS-8",)]


def test_a_trigger_is_one_of_all_failing_cases_of_the_clause() -> None:
    long = failing("e2e/greedy:GEN-14:requests=20", "relation broken", reach="many requests")
    others = [failing(f"e2e/drafters:GEN-14:requests={n}", "relation broken", reach="a drafter") for n in (1, 2)]
    assert [cause.is_trigger for cause in fold([long])] == [True]
    assert [cause.is_trigger for cause in fold(others)] == [True]
    causes = fold([long, *others])
    assert [cause.is_trigger for cause in causes] == [False, False], "cases with either fail without the other"
    assert any("reached in production, first seen with: many requests" in facts(cause) for cause in causes)
    unreached = failing("e2e/greedy:GEN-14:requests=3", "relation broken")
    assert [cause.is_trigger for cause in fold([long, unreached])] == [True]


def test_of_the_causes_of_one_clause_those_that_tell_more_come_first() -> None:
    """They take the places of their clause among the others, and go no further."""

    def cases(subject: str, clause: int, count: int, message: str = "3 of 4", **details: Any) -> list[Record]:
        failure = {"details": details}
        return [
            failing(f"e2e/{subject}:GEN-{clause}:k={k}", message=message, failure=failure, reach="always")
            for k in range(count)
        ]

    records = [
        *cases("greedy", 14, 9),
        *cases("windows", 48, 8),
        *cases("drafters", 14, 7, **{LOCATED: False}),
        *cases("first_drafts", 14, 2, **{LOCATED: True}),
        *cases("trees", 14, 1, f"3 of 4; all drafts are {AS_IF}they were old"),
    ]
    assert [(c.subjects[0], c.clause) for c in fold(records)] == [
        ("first_drafts", "GEN-14"),
        ("windows", "GEN-48"),
        ("trees", "GEN-14"),
        ("greedy", "GEN-14"),
        ("drafters", "GEN-14"),
    ]


def test_of_cases_that_name_a_fault_one_that_names_it_alone_is_shown() -> None:
    def naming(k: int, *faults: str) -> Record:
        return failing(f"{OP}:RRS-7:k={k}", failure={"details": {FAULT: ALTERNATIVELY.join(faults)}})

    either = [naming(k, "old keys", "no keys") for k in (1, 2, 3)]
    unlike = passing(*(f"{OP}:RRS-1:k={k}" for k in range(9)))
    assert fold([*either, naming(4, "no keys"), *unlike])[0].named == "no keys"
    assert fold([*either, naming(4, "no keys"), failing(f"{OP}:RRS-7:k=5"), *unlike])[0].named == "no keys"
    assert fold([*either, *unlike])[0].named == ALTERNATIVELY.join(("old keys", "no keys"))


def test_what_no_caller_can_reach_comes_after_what_one_may() -> None:
    """More of its cases may fail, as its clause has more of them."""
    op = "sampler/eagle_prepare_next_token_padded"
    records = [failing(f"{op}:ENT-6:token=-{n}", "value", "is 52") for n in (2, 3)]
    records.append(failing(f"{op}:ENT-2:row=hole", "value", "is 3"))
    right = passing(*(f"{op}:ENT-1:k={k}" for k in range(9)))
    assert [cause.clause for cause in fold([*records, *right])] == ["ENT-2", "ENT-6"]

"""Causes that tell more than others: the fault by its name, where it shows, and what triggers it."""

from __future__ import annotations

from typing import Any

from failing_records import OP, failing, passing

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


def test_clauses_of_an_op_with_one_explanation_are_one_cause() -> None:
    """It is that of the first clause, whichever fails most; large calls of every op have no explanation."""
    said = f"wrong (all outputs are {AS_IF}uniform_probs were read at the request's first row)"
    other = f"wrong (all outputs are {AS_IF}NO_DRAFT_PROBS were True)"
    one = [failing(f"{OP}:RRS-{n}:k={k}", message=said, reach="always") for n, k in ((1, 1), (6, 1), (6, 2))]
    large = [failing(f"{OP}:ANY-2:k={k}", message=said if k == 1 else "wrong", reach="always") for k in (1, 2, 3)]
    old = [failing(f"{OP}:RRS-9:k=1", message=other), failing(f"{OP}:RRS-8:k=1")]
    right = passing(*(f"{OP}:RRS-1:k={k}" for k in range(2, 19)))
    causes = fold([*one, *large, *old, *right])
    assert [c.clauses for c in causes] == [("ANY-2", "RRS-1", "RRS-6"), ("RRS-8",), ("RRS-9",)]
    assert causes[0].clause == "RRS-1"


def test_an_error_that_tells_its_fault_comes_before_others_of_its_op() -> None:
    wrong = [failing(f"{OP}:RRS-7:k={k}", reach="padding") for k in range(4)]
    telling = failing(f"{OP}:RRS-1:k=1", message=f"wrong (all outputs are {AS_IF}u were 1)", reach="always")
    right = passing(*(f"{OP}:RRS-1:k={k}" for k in range(2, 19)))
    assert [c.clause for c in fold([*wrong, telling, *right])] == ["RRS-1", "RRS-7"]
    note = failing(f"{OP}:RRS-1:k=1", message=telling.message)
    assert [c.clause for c in fold([*wrong, note, *right])] == ["RRS-7", "RRS-1"]


def test_an_error_that_tells_its_fault_comes_before_others_of_its_parameter() -> None:
    def cases(parameter: str) -> list[str]:
        texts = [failing(f"e2e/parameters:GEN-19:parameter={parameter};k={k}", reach="always") for k in (1, 2)]
        named = {"details": {FAULT: "of a bad word the last two tokens alone count"}}
        sampler = "synthetic/whole_sampler_parameters:WS-17:parameter=bad words"
        right = passing(*(f"{sampler};k={k}" for k in range(9)), *(f"e2e/parameters:GEN-19:k={k}" for k in range(9)))
        return [c.clause for c in fold([*texts, failing(sampler, failure=named, reach="always"), *right])]

    assert cases("bad words") == ["WS-17", "GEN-19"]
    assert cases("min-p") == ["GEN-19", "WS-17"], "they may be two faults"


def test_of_an_ops_errors_one_under_the_condition_of_most_clauses_comes_first() -> None:
    """More cases fail with top-k, which few requests have."""
    op = "sampler/verify_draft_logits"
    plain = [failing(f"{op}:VDL-{n}:k=1", reach="every batch") for n in (1, 2, 4)]
    limits = [failing(f"{op}:VDL-5:k={k}", reach="top-k") for k in range(9)]
    right = passing(*(f"{op}:VDL-3:k={k}" for k in range(30)))
    assert [c.clause for c in fold([*plain, *limits, *right])] == ["VDL-1", "VDL-2", "VDL-4", "VDL-5"]
    assert [c.clause for c in fold([*plain[:2], *limits, *right])] == ["VDL-5", "VDL-1", "VDL-2"], "two may be special"


def test_what_fails_at_an_equal_number_may_be_the_fault_of_the_numbers() -> None:
    """The number is then another one, and no longer equal to the rate."""
    op = "sampler/synthetic_rejection"
    numbers = failing(f"{op}:ANY-13:number=small")
    equal = failing(f"{op}:SYN-1:rate=equal", reach="synthetic mode")
    right = passing(*(f"{op}:SYN-1:k={k}" for k in range(9)))
    first, second = fold([equal, numbers, *right])
    assert (first.clause, first.beside, second.beside) == ("SYN-1", ("ANY-13",), ())
    assert "may be the fault of ANY-13, which this op fails too" in list(facts(first))
    assert fold([equal, *right])[0].beside == ()
    unequal = failing(f"{op}:SYN-1:rate=zero", reach="synthetic mode")
    assert [c.beside for c in fold([equal, unequal, numbers, *right])] == [(), ("SYN-1",)]


def test_what_is_wrong_comes_before_what_changes_beside_other_requests() -> None:
    """A fault of temperatures, of drafts' rows or of seeds changes tokens beside other requests too."""

    def order(relation: str, *others: str) -> list[str]:
        records = [failing(f"{relation}:change={n}", reach="requests come and go") for n in range(5)]
        records += [failing(f"{other}:k=1", reach="a request with a seed") for other in others]
        subjects = {case.partition(":")[0] for case in (relation, *others)}
        right = passing(*(f"{subject}:{relation.partition(':')[2]}:k={k}" for subject in subjects for k in range(9)))
        return [cause.clause for cause in fold([*records, *right])]

    sampler = "sampler/whole_sampler"
    assert order(f"{sampler}:WS-2", f"{sampler}:WS-3", "sampler/whole_sampler_limits:WS-10") == [
        "WS-3",
        "WS-10",
        "WS-2",
    ]
    assert order("e2e/greedy:GEN-3", "e2e/parameters:GEN-23") == ["GEN-23", "GEN-3"]
    assert order("e2e/sampled:GEN-12", "e2e/sampled:GEN-5") == ["GEN-5", "GEN-12"]
    assert order(f"{sampler}:WS-2") == ["WS-2"]


def test_other_requests_are_shown_as_most_cases_have_them() -> None:
    """Padding on the wrong side fails beside sampled requests too, which are no condition."""
    usual = [failing(f"e2e/greedy:GEN-3:draft=none;others={n}", reach="requests come and go") for n in (2, 20)]
    sampled = failing("e2e/greedy:GEN-3:draft=none;others=sampled", reach="greedy and sampled requests in one batch")
    right = passing("e2e/greedy:GEN-3:draft=none;others=none")
    (cause,) = fold([sampled, *usual, *right])
    assert (cause.case, cause.reach) == (usual[0].id, "requests come and go")
    assert cause.where == "fails for others=sampled, 2 or 20; passes for others=none"
    assert fold([sampled, *right])[0].case == sampled.id

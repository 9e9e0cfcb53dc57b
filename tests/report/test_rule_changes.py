"""Changes of an op's rule that explain failing cases: which of them a cause names."""

from __future__ import annotations

from failing_records import failing, passing

from verispec.report.causes import fold
from verispec.run.record import Record

CHANGE = "`min(r, 1.0)` were `r` in line 3 of the oracle's op.py"


def changed(case: str, words: str = CHANGE, before: str = "") -> Record:
    return failing(
        case, message=f"wrong ({before}all outputs are as if {words})", failure={"details": {"fault": words}}
    )


def test_a_change_of_a_rule_that_several_cases_show_is_their_fault() -> None:
    (cause,) = fold(
        [changed("sampler/op:OP-1:a=1"), changed("sampler/op:OP-2:a=1"), *passing("sampler/op:OP-1:a=2")] * 1
    )
    assert cause.named == CHANGE
    assert cause.message.endswith(f"as if {CHANGE})")


def test_a_change_of_a_rule_that_one_of_several_cases_shows_is_chance() -> None:
    records = [changed("sampler/op:OP-1:a=1", before="wrong from row 2 on; "), failing("sampler/op:OP-1:a=3")]
    (cause,) = fold([*records, *passing("sampler/op:OP-1:a=2")])
    assert (cause.named, cause.message) == ("", "wrong (wrong from row 2 on)")


def test_a_change_of_a_rule_stays_where_its_case_alone_fails() -> None:
    (cause,) = fold([changed("sampler/op:OP-1:a=1"), *passing("sampler/op:OP-1:a=2")])
    assert cause.named == CHANGE


def test_a_change_of_a_rule_that_few_of_the_failing_cases_show_is_not_their_fault() -> None:
    """It may give the outputs of special calls alone, such as requests of one token."""
    shown = [changed(f"sampler/op:OP-1:a={n}") for n in range(2)]
    for others, named in ((2, CHANGE), (3, "")):
        rest = [failing(f"sampler/op:OP-2:b={n}", message="wrong") for n in range(others)]
        causes = fold([*shown, *rest, *passing("sampler/op:OP-1:a=9"), *passing("sampler/op:OP-3:c=1")])
        assert {cause.named for cause in causes if cause.clause == "OP-1"} == {named}


def test_a_listed_mistake_is_shown_under_the_clause_that_it_breaks() -> None:
    """Another clause may have fewer cases, of which more fail."""
    words = "the rejected draft could be drawn"
    records = [changed(f"sampler/verify_one_hot:VOH-2:k={n}", words) for n in range(3)]
    records += [changed("sampler/verify_one_hot:VOH-14:limited=yes", words)]
    right = [f"sampler/verify_one_hot:VOH-2:p={n}" for n in range(9)]
    (cause,) = fold([*records, *(record for case in right for record in passing(case))])
    assert (cause.clause, cause.clauses, cause.named) == ("VOH-2", ("VOH-2", "VOH-14"), words)
    others = [changed(record.id, "another fault") for record in records]
    (cause,) = fold([*others, *(record for case in right for record in passing(case))])
    assert cause.clause == "VOH-14"

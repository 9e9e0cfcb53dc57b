"""Traits that the calls of a cause share: all calls have to show them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from failing_records import failing, passing

from verispec.report.causes import fold
from verispec.report.traits import shared_mistake, shared_places, told_together
from verispec.run.record import AGREEING, PARTLY, TRAITS, Record

ENT = "sampler/eagle_prepare_next_token_padded"
ONE, LAST = "wrong only in requests of one draft", "wrong only in the last request"


def failed(clause: str, number: int, message: str = "next_token_ids_ptr[0] is 1, expected 2", **details: Any) -> Record:
    failure = {"output": "next_token_ids_ptr", "details": details}
    return failing(f"{ENT}:{clause}:b={number}", message=message, failure=failure)


def with_traits(*traits: dict[str, list[float]]) -> list[Record]:
    return [failed("ENT-1", n, **{TRAITS: each}) for n, each in enumerate(traits)]


def with_mistakes(*agreeing: list[str]) -> list[Record]:
    return [failed("ENT-1", n, **{AGREEING: each, PARTLY: []}) for n, each in enumerate(agreeing)]


def test_small_calls_tell_together_where_all_wrong_elements_lie() -> None:
    records = with_traits({ONE: [2, 1], LAST: [0.5, 1]}, {ONE: [2, 1]}, {ONE: [1.2, 1], LAST: [0.5, 1]})
    assert shared_places(records) == f"{ONE} in all 3 calls that tell"


@pytest.mark.parametrize(
    "traits",
    [
        ({ONE: [2, 1]}, {ONE: [2, 1]}),
        ({ONE: [0.9, 1]}, {ONE: [0.9, 1]}, {ONE: [0.9, 1]}),
        ({ONE: [5, 1]}, {ONE: [5, 1]}, {LAST: [5, 1]}),
    ],
    ids=["few cases", "little evidence", "one case elsewhere"],
)
def test_places_that_may_be_chance_are_not_told(traits: tuple[dict[str, list[float]], ...]) -> None:
    assert shared_places(with_traits(*traits)) == ""


def test_places_are_not_told_beside_a_mistake_that_gives_all_outputs() -> None:
    """They may be those of the calls alone, and a reader needs no second trait."""
    records = with_traits(*({ONE: [2, 1]},) * 3)
    places = f"{ONE} in all 3 calls that tell"
    assert told_together(records[0], records, records).endswith(f"({places})")
    message = f"{records[0].message} (all outputs are as if k were 0)"
    explained = replace(records[0], failure={**records[0].failure, "message": message})
    assert told_together(explained, records, records) == message


def test_a_bound_is_told_beside_a_mistake_that_has_the_same_effect() -> None:
    small = "wrong only where draft_probs_ptr of the draft is below 0.001"
    records = with_traits(*({small: [2, 1], "wrong only where k is above 0": [2, 0.3]},) * 3)
    message = f"{records[0].message} (all outputs are as if k were 0"
    explained = replace(records[0], failure={**records[0].failure, "message": f"{message})"})
    assert told_together(explained, records, records) == f"{message}; {small} in all 3 calls that tell)"


def test_of_several_kinds_the_one_of_which_the_most_is_wrong_is_told() -> None:
    records = with_traits(*({LAST: [9.0, 0.2], ONE: [1.8, 1]},) * 3)
    assert shared_places(records).startswith(ONE)


def test_the_mistake_that_agrees_with_nearly_all_calls_is_told() -> None:
    records = with_mistakes(*(["k were one less", "k were 0"],) * 2, *(["k were one less"],) * 7, [])
    assert shared_mistake(records) == "in 9 of 10 calls all outputs are as if k were one less"


def test_a_mistake_of_the_wrong_elements_is_told_where_none_gives_all_outputs() -> None:
    records = [failed("ENT-1", n, **{AGREEING: [], PARTLY: ["k were 0"]}) for n in range(3)]
    assert shared_mistake(records) == "in 3 of 3 calls the wrong values are as if k were 0"


@pytest.mark.parametrize(
    "agreeing",
    [(["a"], ["a"]), (["a"],) * 8 + ([],) * 2, (["a", "b", "c", "d"],) * 3],
    ids=["few cases", "not most of them", "many mistakes"],
)
def test_a_mistake_that_may_be_chance_is_not_told(agreeing: tuple[list[str], ...]) -> None:
    assert shared_mistake(with_mistakes(*agreeing)) == ""


def test_a_cause_tells_the_mistake_of_its_calls_and_not_that_of_one() -> None:
    message = f"next_token_ids_ptr[0] is 1, expected 2 ({LAST}; all outputs are as if a)"
    details = {AGREEING: ["b"], PARTLY: [], TRAITS: {ONE: [2, 1]}}
    records = [failed("ENT-1", n, **details) for n in range(9)]
    first = failed("ENT-1", 0, message, **(details | {AGREEING: ["a", "b"]}))
    (cause,) = fold([first, *records[1:]])
    assert cause.message.endswith(f"({LAST}; {ONE} in all 9 calls that tell; in 9 of 9 calls all outputs are as if b)")


def test_clauses_whose_calls_one_mistake_gives_are_one_cause_under_the_clause_of_their_places() -> None:
    where = {TRAITS: {"wrong only where discard_request_mask_ptr is true": [2, 1]}, AGREEING: ["a"], PARTLY: []}
    records = [failed(f"ENT-{clause}", n, **where) for clause in (1, 2, 4) for n in range(2)]
    (cause,) = fold([*records, *passing(*(f"{ENT}:ENT-{n}:b=9" for n in (1, 2, 3, 4, 5, 6, 7)))])
    assert cause.clause == "ENT-4"
    assert len(cause.cases) == 6

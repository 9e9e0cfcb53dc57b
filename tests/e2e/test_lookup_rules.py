"""A rule of prompt lookup that changes with the length of a text: the message names that length."""

from __future__ import annotations

from verispec.suites.e2e._lookup import WrongStep, switched

FIRST, LAST = "its first place", "its last place"


def steps(*lengths: int) -> list[WrongStep]:
    return [WrongStep(length, "") for length in lengths]


def test_the_rule_of_short_texts_is_told() -> None:
    assert switched(FIRST, {FIRST: steps(20, 33), LAST: steps(70)}) == f"{LAST} counted in texts of up to 33 tokens"


def test_the_rule_of_long_texts_is_told() -> None:
    assert switched(LAST, {FIRST: steps(20, 33), LAST: steps(70)}) == f"{FIRST} counted in texts of 70 tokens or more"


def test_wrong_steps_of_equal_lengths_tell_no_other_rule() -> None:
    assert switched(FIRST, {FIRST: steps(20, 70), LAST: steps(40)}) == ""

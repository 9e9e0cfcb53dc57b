"""A case of several calls finds a wrong one behind a refused one, and does not pass when one is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from verispec.engines import UnsupportedCall
from verispec.judge import Failure, Inconclusive, Kind, Mismatch, NotOffered
from verispec.suites.sampler._refusals import check_each, try_each


def refused(reason: str = "no synthetic mode") -> Callable[[], None]:
    def check() -> None:
        raise UnsupportedCall(reason)

    return check


def wrong() -> None:
    raise Mismatch(Failure(Kind.VALUE, "7 instead of 8"))


def test_a_wrong_call_behind_a_refused_one_is_found() -> None:
    with pytest.raises(Mismatch, match="7 instead of 8"):
        check_each([refused(), list, wrong])


def test_a_case_with_a_refused_call_does_not_pass() -> None:
    seen: list[int] = []
    with pytest.raises(UnsupportedCall, match=r"^first$"):
        check_each([list, refused("first"), lambda: seen.append(1), refused("second")])
    assert seen == [1]


def test_a_wrong_call_behind_one_that_decides_nothing_is_found() -> None:
    def undecided() -> None:
        raise Inconclusive("wrong already when dense")

    with pytest.raises(Mismatch, match="7 instead of 8"):
        check_each([undecided, wrong])
    with pytest.raises(Inconclusive, match="wrong already"):
        check_each([undecided, refused()])


def test_a_refusal_of_an_earlier_part_counts() -> None:
    with pytest.raises(UnsupportedCall, match="earlier"):
        check_each([list], UnsupportedCall("earlier"))


def test_a_case_passes_if_all_calls_are_right() -> None:
    check_each([list, list])
    assert try_each([lambda: 1, lambda: 2]) == ([1, 2], None)


def test_an_op_that_is_not_there_ends_the_case() -> None:
    def absent() -> None:
        raise NotOffered("no such op")

    with pytest.raises(NotOffered):
        check_each([absent, wrong])

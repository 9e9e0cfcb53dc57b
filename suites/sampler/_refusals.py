"""Cases of several calls, some of which an engine may refuse: such a case is not decided, but the others still count.

So is a case of which one call decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

from verispec.engines import UnsupportedCall
from verispec.judge import Inconclusive, NotOffered

Answer = TypeVar("Answer")
Undecided: TypeAlias = UnsupportedCall | Inconclusive


def try_each(calls: Iterable[Callable[[], Answer]]) -> tuple[list[Answer], Undecided | None]:
    """Make every call; return the answers, and the first refusal or the first reason why a call decides nothing.

    Raises:
        NotOffered: the engine does not have the op at all.
    """
    answers: list[Answer] = []
    undecided: Undecided | None = None
    for call in calls:
        try:
            answers.append(call())
        except NotOffered:
            raise
        except (UnsupportedCall, Inconclusive) as error:
            undecided = undecided or error
    return answers, undecided


def check_each(checks: Iterable[Callable[[], object]], undecided: Undecided | None = None) -> None:
    """Run every check, also those after a call that the engine refuses or that decides nothing.

    Args:
        checks: functions that raise for a wrong answer.
        undecided: such an end of an earlier part of the case.

    Raises:
        UnsupportedCall: the first such end is a refusal: the case is not decided as a whole.
        Inconclusive: it is a call that decides nothing.
    """
    found = try_each(checks)[1]
    if first := undecided or found:
        raise first

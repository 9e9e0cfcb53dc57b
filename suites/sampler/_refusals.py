"""Cases of several calls, of which an engine may refuse some: a refusal ends the case, but does not hide the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from verispec.engines import UnsupportedCall
from verispec.judge import NotOffered

Answer = TypeVar("Answer")


def try_each(calls: Iterable[Callable[[], Answer]]) -> tuple[list[Answer], UnsupportedCall | None]:
    """Make every call; return the answers, and the first refusal.

    Raises:
        NotOffered: the engine does not have the op at all.
    """
    answers: list[Answer] = []
    refusal = None
    for call in calls:
        try:
            answers.append(call())
        except NotOffered:
            raise
        except UnsupportedCall as error:
            refusal = refusal or error
    return answers, refusal


def check_each(checks: Iterable[Callable[[], object]], refusal: UnsupportedCall | None = None) -> None:
    """Run every check, also those after a call that the engine refuses.

    Args:
        checks: functions that raise for a wrong answer.
        refusal: refusal of an earlier part of the case.

    Raises:
        UnsupportedCall: the first refusal, since the case is not decided as a whole.
    """
    found = try_each(checks)[1]
    if first := refusal or found:
        raise first

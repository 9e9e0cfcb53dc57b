"""What a rule is made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from verispec.static.finding import Finding, Level

_ID: Final = re.compile(r"SIG\d{3}")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: `why` is one paragraph with a real example, `level` the highest level of its findings.

    `check` reads the linked index of a tree and yields findings; it never reads files.
    """

    id: str
    title: str
    level: Level
    why: str
    check: Callable[[Any], Iterable[Finding]]

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise ValueError(f"{self.id!r} is not a rule id such as 'SIG101'")
        if not self.why.endswith("."):
            raise ValueError(f"{self.id}: the reason is a paragraph and ends with a full stop")

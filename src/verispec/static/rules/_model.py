"""The data model of a rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from textwrap import dedent
from typing import Any, Final

from verispec.static.finding import Finding, Level
from verispec.static.rules._pages import EXAMPLES, REPAIRS

_ID: Final = re.compile(r"SIG\d{3}")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the static checker.

    Attributes:
        level: The highest level of its findings.
        why: One paragraph with a real regression.
        check: Reads the linked index of a tree and yields findings; it never reads files.
        own_example, own_fix: The page of a rule of another package; verispec's own pages are in `_pages`.
    """

    id: str
    title: str
    level: Level
    why: str
    check: Callable[[Any], Iterable[Finding]]
    own_example: str = ""
    own_fix: str = ""

    @property
    def example(self) -> str:
        """The smallest source that the rule reports."""
        return dedent(self.own_example or EXAMPLES[self.id]).strip("\n")

    @property
    def fix(self) -> str:
        """Return the fix for a finding, in one sentence."""
        return self.own_fix or REPAIRS[self.id]

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise ValueError(f"{self.id!r} is not a rule id such as 'SIG101'")
        if not self.why.endswith("."):
            raise ValueError(f"{self.id}: the reason is a paragraph and ends with a full stop")

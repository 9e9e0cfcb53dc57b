"""Sites of a C++ file, and the tables of replacements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

COMPARISONS: Final = {
    "<": ("<=", ">=", "=="),
    "<=": ("<", ">", "=="),
    ">": (">=", "<=", "=="),
    ">=": (">", "<", "=="),
    "==": ("!=", "<=", ">="),
    "!=": ("==", "<", ">"),
}
ARITHMETIC: Final = {
    "+": ("-",), "-": ("+",), "*": ("/", "+"), "/": ("*",), "%": ("/",),
    "<<": (">>",), ">>": ("<<",), "&": ("|",), "|": ("&", "^"), "^": ("|",),
}  # fmt: skip
LOGICAL: Final = {"&&": "||", "||": "&&"}
ASSIGNMENTS: Final = {"+=": ("-=", "="), "-=": ("+=",), "|=": ("=",), "*=": ("=",)}
ROWS: Final = {"b", "i", "row", "request", "token", "state", "step", "block"}
"""Parameters of helpers that stand for the index of a loop around the call."""
INTEGER_TYPES: Final = {"int64_t", "int32_t", "int", "size_t", "uint32_t"}


@dataclass(slots=True)
class Alternative:
    """One replacement of a site's text."""

    operator: str
    text: str
    number: int = -1
    loops: int = 0
    """Number of loops around it: without one, a condition on an index never holds."""


@dataclass(slots=True)
class Site:
    """A place that can be changed.

    Attributes:
        start: first byte of its text.
        end: byte after its text.
        kind: expression, statement, declaration or pragma, which determines the form of its alternatives.
        line: number of the line, from 1.
        column: number of the column, from 1.
        loops: variables of the enclosing loops that are in scope, outermost first.
        alternatives: replacements of the text.
        before: the text.
    """

    start: int
    end: int
    kind: str
    line: int
    column: int
    loops: tuple[str, ...]
    alternatives: list[Alternative] = field(default_factory=list)
    before: str = ""

"""Text for a terminal or a log: without control characters, and in lines that fit."""

from __future__ import annotations

import shutil
import sys
import textwrap

COLUMNS = 80
"""Columns of a line where no terminal has another width: every log viewer shows them without scrolling."""


def columns() -> int:
    """Return the width of the terminal; `COLUMNS` if stdout is a file or a pipe."""
    return shutil.get_terminal_size((COLUMNS, 24)).columns if sys.stdout.isatty() else COLUMNS


def printable(text: str) -> str:
    """Escape every character that a terminal or an XML reader could misread; line ends stay."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def wrapped(text: str, width: int, *, first: int = 0, rest: int = 2) -> list[str]:
    """Return printable lines of at most `width` columns; a longer word, such as a path, stays whole.

    No line but the first begins with "::", which a CI service reads as a command.

    Args:
        text: text of an engine or of verispec; its line ends count as spaces.
        width: maximum number of columns.
        first: indentation of the first line.
        rest: indentation of the other lines.
    """
    lines = textwrap.wrap(
        printable(text),
        width,
        initial_indent=" " * first,
        subsequent_indent=" " * rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    joined = lines[:1]
    for line in lines[1:]:
        if line.lstrip().startswith("::"):
            joined[-1] += f" {line.lstrip()}"
        else:
            joined.append(line)
    return joined

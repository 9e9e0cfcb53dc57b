"""Text for a terminal or a log: without control characters, and in lines that fit."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

COLUMNS = 80
"""Columns of a line where no terminal has another width: every log viewer shows them without scrolling."""


LEAST = 24
"""Columns that the last cell of a row needs to be read: one word per line is no text."""


def columns(otherwise: int = COLUMNS) -> int:
    """Return the width of the terminal; `otherwise` if stdout is a file or a pipe."""
    return shutil.get_terminal_size((COLUMNS, 24)).columns if sys.stdout.isatty() else otherwise


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


def table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield rows in columns, the last of which is wrapped; where that leaves it no room, a block of lines per row.

    Args:
        head: name of each column.
        rows: cells; the first of a row names it.
        width: maximum number of columns of a line; a longer word stays whole.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    before = sum(widths[:-1]) + 2 * len(widths[:-1])
    if width - before >= min(LEAST, widths[-1]):
        for row in (head, *cells):
            start = "".join(f"{cell:<{wide}}  " for cell, wide in zip(row[:-1], widths[:-1], strict=True))
            last = wrapped(row[-1], width - before, rest=0) or [""]
            yield (start + last[0]).rstrip()
            yield from (" " * before + line for line in last[1:])
        return
    for name, *others in cells:
        yield name
        said = ", ".join(f"{title}: {cell}" for title, cell in zip(head[1:], others, strict=True) if cell)
        yield from wrapped(said, width, first=2)

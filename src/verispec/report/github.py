"""A run as GitHub's workflow commands: one annotation per cause."""

from __future__ import annotations

from verispec.report.cause import Cause
from verispec.report.local_place import place_of
from verispec.report.text import complaints, facts, repro
from verispec.report.verdict import RunSummary
from verispec.terminal import printable


def as_github(summary: RunSummary) -> str:
    """Return an annotation for each unexpected cause, and for each complaint about the run itself."""
    lines = []
    for cause in summary.causes:
        body = "\n".join([cause.message, *facts(cause), repro(cause.case, summary.run.header)])
        kind = "error" if cause.level == "error" else "notice"
        lines.append(f"::{kind} {_where(cause)}title={_property(cause.headline)}::{_escaped(body)}")
    lines += [f"::error title=verispec::{_escaped(line)}" for line in complaints(summary)]
    return "".join(f"{line}\n" for line in lines)


def _where(cause: Cause) -> str:
    """Return the properties of a cause's place; empty where no file of the repository is known."""
    file, line, is_below = place_of(cause) or ("", 0, False)
    return f"file={_property(file)},line={line}," if is_below else ""


def _escaped(text: str) -> str:
    for character in "%\r\n":
        text = text.replace(character, f"%{ord(character):02X}")
    return printable(text)


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")

"""Findings as Markdown: a comment on a pull request, with both sides of each disagreement and how to fix it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from verispec.report.signatures import WEIGHT, SignatureReport, compared
from verispec.static.finding import Finding, Level
from verispec.terminal import printable

_SHOWN = 20
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~@])")


def as_markdown(report: SignatureReport) -> str:
    """Return the findings from warnings upwards; the text of a tree cannot break out of its place."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: SignatureReport) -> Iterator[str]:
    count = report.count()
    said = ", ".join(f"{count[level]} {level.value}{'' if count[level] == 1 else 's'}" for level in Level)
    against = f" with {_text(report.core)}" if report.core else ""
    since = f", new since {_text(report.since)}" if report.since else ""
    yield f"### verispec signatures: {said}{against}{since}"
    if "kernels" in report.stats:
        yield ""
        yield f"{_text(compared(report))}."
    if report.exit_code == 125:
        yield ""
        yield "Some files could not be checked, so that findings may be missing."
    shown = [finding for finding in report.placed() if WEIGHT[finding.level] > WEIGHT[Level.NOTE]]
    for finding in shown[:_SHOWN]:
        yield ""
        yield from _finding(finding)
    if len(shown) > _SHOWN:
        yield ""
        yield f"and {len(shown) - _SHOWN} more"


def _finding(finding: Finding) -> Iterator[str]:
    yield f"**{finding.level.value} {finding.rule}** {_code(str(finding.location))}: {_text(finding.message)}"
    yield ""
    for side in finding.sides:
        yield f"- {_text(side.label)} ({_code(str(side.location))}): {_code(side.text)}"
    if finding.fix:
        yield f"- fix: {_text(finding.fix)}"
    yield f"- not a fault? {_code(f'# verispec: ignore[{finding.rule}] reason')} on its line"


def _text(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", printable(" ".join(text.split())))


def _code(text: str) -> str:
    text = printable(" ".join(text.split()))
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}" if longest else f"`{text}`"

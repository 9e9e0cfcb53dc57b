"""Comments that silence a finding: ``# verispec: ignore[SIG101] reason`` on its line or the line above."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from verispec.errors import Diagnostic
from verispec.static.facts import FileFacts, Ignore
from verispec.static.finding import Finding, Location

_COMMENT: Final = re.compile(rb"(?:#|//)[ \t]*verispec:[ \t]*ignore(?:\[([^\]\n]*)\])?[ \t]*([^\n]*)")


def read_ignores(data: bytes) -> tuple[Ignore, ...]:
    """Return the ``verispec:`` comments of the Python or C++ source `data`."""
    if b"verispec:" not in data:
        return ()
    found = []
    for match in _COMMENT.finditer(data):
        rules = tuple(rule.strip().decode("ascii", "replace") for rule in (match[1] or b"").split(b",") if rule.strip())
        reason = match[2].decode("utf-8", "replace").strip()
        found.append(Ignore(data.count(b"\n", 0, match.start()) + 1, rules, reason))
    return tuple(found)


def apply_ignores(
    findings: Iterable[Finding], summaries: Mapping[str, FileFacts], own: Collection[str], rules: Collection[str]
) -> tuple[list[Finding], int, list[Diagnostic]]:
    """Return the findings that no comment silences, the number of the others, and faulty comments.

    Args:
        findings: All findings of a run.
        summaries: File summaries by path.
        own: Paths of the tree under test; only its comments are checked for being of use.
        rules: Ids of the rules that were applied; a comment for another rule may be of use in another run.
    """
    used: set[tuple[str, Ignore]] = set()
    kept: list[Finding] = []
    silenced = 0
    for finding in findings:
        matching = [
            (path, ignore)
            for path, first, last in _spans(finding)
            if path in summaries
            for ignore in summaries[path].ignores
            if first <= ignore.line <= last and finding.rule in ignore.rules and ignore.reason
        ]
        used.update(matching)
        if matching:
            silenced += 1
        else:
            kept.append(finding)
    problems = [
        problem
        for path in own
        for ignore in summaries[path].ignores
        if (problem := _problem(path, ignore, rules, (path, ignore) in used)) is not None
    ]
    return kept, silenced, problems


def is_silenced(finding: Finding, ignores: Iterable[Ignore]) -> bool:
    """Return True if one of `ignores`, the comments of its file, silences `finding`."""
    first, last = finding.location.line - 1, finding.location.end_line or finding.location.line
    return any(first <= ignore.line <= last and finding.rule in ignore.rules and ignore.reason for ignore in ignores)


def _spans(finding: Finding) -> Iterable[tuple[str, int, int]]:
    """Yield the lines on which a comment silences `finding`: the whole call, and the first line of other places."""
    here = finding.location
    yield here.path, here.line - 1, max(here.line, _end(here))
    for side in finding.sides:
        yield side.location.path, side.location.line - 1, side.location.line


def _end(location: Location) -> int:
    # A function may span hundreds of lines, a call rarely more than twenty.
    end = location.end_line or location.line
    return end if end - location.line < 100 else location.line


def _problem(path: str, ignore: Ignore, rules: Collection[str], used: bool) -> Diagnostic | None:
    where = f"{path}:{ignore.line}"
    if not ignore.rules or not ignore.reason:
        missing = "no rule" if not ignore.rules else "no reason"
        return Diagnostic(
            "V-IGNORE-INCOMPLETE",
            f"the comment silences nothing: it names {missing}",
            where,
            hint="write # verispec: ignore[SIG101] and a reason",
        )
    if not used and set(ignore.rules) <= set(rules):
        return Diagnostic(
            "V-IGNORE-UNUSED",
            f"nothing to silence: no finding of {', '.join(ignore.rules)} here",
            where,
            hint="delete the comment",
        )
    return None

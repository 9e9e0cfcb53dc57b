"""A proposal for an engine's file of known failures, from a run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from verispec.cases import selects
from verispec.expectations import VARIES, Expectation
from verispec.report.cause import Cause
from verispec.report.text import extent, plural
from verispec.report.verdict import summarise
from verispec.run.record import FAILING, Record
from verispec.run.runfile import Run


def proposal(run: Run) -> str:
    """Return the file of known failures that `run` asks for, as TOML.

    Entries that still hold are kept. An entry that is stale for some of its cases is narrowed to the others; one that
    is stale for all of them, or that matches nothing, is left out. New failures are added, one or more entries per
    cause, with an empty `issue`: the file cannot be used before somebody has filled in the links.
    """
    summary = summarise(run)
    entries = [Expectation(**entry) for entry in run.header.get("expectations", ())]
    lines = ["# Proposed by verispec run --update-expectations."]
    if summary.causes:
        lines.append("# Fill in each empty issue: nobody fixes a known failure without one.")
    for entry, own in zip(entries, _by_entry(entries, run.records), strict=True):
        lines += _kept(entry, own, run)
    for cause in summary.causes:
        lines += ["", *_comment(cause)]
        by_outcome: dict[str, list[str]] = {}
        seen = {record.id: record for record in run.records}
        for case in (*cause.cases, *cause.consequences):
            if seen[case].outcome in FAILING:  # an xpass is not new
                by_outcome.setdefault(seen[case].outcome, []).append(case)
        for outcome, cases in by_outcome.items():
            for pattern in patterns(cases, outcome, run.records):
                lines += _entry(pattern, outcome, "", cause.message)
    return "\n".join(lines) + "\n"


def patterns(cases: Sequence[str], outcome: str, records: Sequence[Record]) -> tuple[str, ...]:
    """Return few patterns that match all of `cases`, and no other case of `records` with another result.

    A pattern is an op, a clause of it, or either with one value of a parameter; a case that none of these
    separates is named by its whole id, with a ``$`` where another id begins with it.
    """
    wanted = set(cases)
    others = [record.id for record in records if record.id not in wanted and record.seen != "unsupported"]
    covers: dict[str, set[str]] = {}
    for case in cases:
        for pattern in _candidates(case):
            if pattern not in covers and not any(selects(pattern, other) for other in others):
                covers[pattern] = {each for each in wanted if selects(pattern, each)}
    found: list[str] = []
    left = set(wanted)
    while left:
        best = min(covers, key=lambda pattern: (-len(covers[pattern] & left), len(pattern), pattern))
        found.append(best)
        left -= covers[best]
    return tuple(sorted(found))


def _candidates(case: str) -> Iterator[str]:
    op, _, rest = case.partition(":")
    clause, _, params = rest.partition(":")
    yield case
    yield f"{case}$"
    yield f"{op}:{clause}"
    for pair in filter(None, params.split(";")):
        if "*" not in pair and "?" not in pair and "[" not in pair:
            yield f"{op}:{clause}:*{pair}*"
            yield f"{op}:*{pair}*"


def _by_entry(entries: Sequence[Expectation], records: Sequence[Record]) -> list[list[Record]]:
    """Return the records of each entry; of several entries that match a record, the first counts."""
    owned: list[list[Record]] = [[] for _ in entries]
    for record in records:
        first = next((n for n, entry in enumerate(entries) if selects(entry.case, record.id)), None)
        if first is not None:
            owned[first].append(record)
    return owned


def _kept(entry: Expectation, own: Sequence[Record], run: Run) -> Iterator[str]:
    """Yield the entry where it holds for its `own` records; a comment where it does not."""
    varies = entry.outcome == VARIES
    stale = [record for record in own if record.seen == "pass" and not varies]
    holds = [record.id for record in own if record.seen == entry.outcome or varies]
    unknown = not own and not (run.footer.get("complete") and not any(run.header["selection"].values()))
    if unknown or (holds and not stale):
        yield from _entry(entry.case, entry.outcome, entry.issue, entry.reason)
    elif holds:
        yield ""
        yield f"# {entry.case!r} is narrowed: {_passing(stale)}."
        for pattern in patterns(holds, entry.outcome, run.records):
            yield from _entry(pattern, entry.outcome, entry.issue, entry.reason)
    else:
        why = _passing(stale) if stale else "none of its cases has this outcome"
        yield ""
        yield f"# {entry.case!r} is left out: {why} ({entry.issue})."


def _passing(stale: Sequence[Record]) -> str:
    return f"{plural(len(stale), 'case')} of it {'passes' if len(stale) == 1 else 'pass'} now"


def _comment(cause: Cause) -> Iterator[str]:
    yield f"# {cause.level} {cause.headline}: {extent(cause)}"


def _entry(case: str, outcome: str, issue: str, reason: str) -> Iterator[str]:
    fields: Mapping[str, str] = {"case": case, "outcome": outcome, "issue": issue, "reason": " ".join(reason.split())}
    yield ""
    yield "[[expect]]"
    for name, value in fields.items():
        if value or name == "issue":
            yield f"{name} = {_quoted(value)}"


def _quoted(text: str) -> str:
    """Return a basic TOML string: JSON's escapes are TOML's, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

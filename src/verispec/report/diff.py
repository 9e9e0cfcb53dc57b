"""Compare two runs case by case: new, fixed, known and changed failures, and lost results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verispec import exits
from verispec.cases import selects
from verispec.report.cause import Cause
from verispec.report.causes import fold, normalised
from verispec.report.markdown import escaped
from verispec.report.text import explained, plural, repro, title
from verispec.run.record import Record
from verispec.run.runfile import Run
from verispec.terminal import COLUMNS, printable, wrapped

FORMAT = "verispec/diff/1"


@dataclass(frozen=True, slots=True)
class RunDiff:
    """The difference between two runs, by case id.

    Attributes:
        base, head: the older and the newer run.
        new: cases that fail in `head` and did not fail in `base`.
        fixed: cases that failed in `base` and pass in `head`.
        known: cases that fail in both in the same way.
        changed: cases that fail in both in different ways.
        lost: cases that passed or failed in `base` and have neither result in `head`.
        shared: number of cases that are in both.
        errors_only: True if new notes do not change the exit code.
    """

    base: Run
    head: Run
    new: tuple[Record, ...]
    fixed: tuple[Record, ...]
    known: tuple[Record, ...]
    changed: tuple[Record, ...]
    lost: tuple[Record, ...]
    shared: int
    errors_only: bool = False

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The new failures, folded by cause."""
        return self._folded(self.new)

    def _folded(self, failing: Sequence[Record]) -> tuple[Cause, ...]:
        return fold([*failing, *(record for record in self.head.records if record.seen == "pass")])

    @property
    def exit_code(self) -> int:
        """Return BAD for new failures, else GOOD.

        It is CANNOT_TELL when results were lost, `head` is not complete, or the runs have no case in common.
        """
        if any(record.level == "error" or not self.errors_only for record in self.new):
            return exits.BAD
        unknown = self.lost or self.disjoint or not self.head.footer.get("complete")
        return exits.CANNOT_TELL if unknown else exits.GOOD

    @property
    def disjoint(self) -> bool:
        """True if both runs have cases and none is in both."""
        return bool(self.base.records and self.head.records and not self.shared)

    @property
    def compared(self) -> str:
        """The number of compared cases, as a sentence."""
        if self.disjoint:
            return "no case is in both runs: nothing was compared"
        sizes = f"of {len(self.base.records):,} in the older and {len(self.head.records):,} in the newer"
        return f"{plural(self.shared, 'case')} {'is' if self.shared == 1 else 'are'} in both runs, {sizes}"

    def to_json(self) -> dict[str, Any]:
        """Return the difference as JSON values; the cases of each class by id."""
        return {
            "format": FORMAT,
            "base": dict(self.base.header),
            "head": dict(self.head.header),
            **{name: [record.id for record in getattr(self, name)] for name in CLASSES},
            "shared": self.shared,
            "causes": [cause.to_json() for cause in self.causes],
            "exit": self.exit_code,
        }


CLASSES: Mapping[str, str] = {
    "new": "fail now and did not fail before",
    "changed": "failed before and fail now in another way",
    "lost": "had a result before and have none now",
    "fixed": "failed before and pass now",
    "known": "fail as before",
}
"""The classes of cases in the order in which they are shown, each with its meaning."""


def compare(base: Run, head: Run, *, errors_only: bool = False) -> RunDiff:
    """Return the difference of two runs.

    A case that `base` does not have is new when it fails. A case that `head` did not select is not compared.

    Args:
        base: the older run.
        head: the newer run.
        errors_only: True if new notes do not change the exit code.
    """
    before = {record.id: record for record in base.records}
    now = {record.id: record for record in head.records}
    found: dict[str, list[Record]] = {name: [] for name in CLASSES}
    for record in head.records:
        old = before.get(record.id)
        if record.failed:
            if old is None or not old.failed:
                found["new"].append(record)
            else:
                found["known" if _alike(old, record) else "changed"].append(record)
        elif record.seen == "pass" and old is not None and old.failed:
            found["fixed"].append(record)
    for old in base.records:
        head_record = now.get(old.id)
        if head_record is None and not _selected(head, old):
            continue
        if _decided(old) and not (head_record and _decided(head_record)):
            found["lost"].append(head_record or old)
    classes = {name: tuple(records) for name, records in found.items()}
    return RunDiff(base, head, **classes, shared=len(before.keys() & now.keys()), errors_only=errors_only)


def _selected(run: Run, record: Record) -> bool:
    """Return True if `run` selects the case; False for a smoke run, which takes one case per clause."""
    selection = run.header["selection"]
    if selection["smoke"]:
        return False
    suites = {Path(suite).name for suite in selection["suites"]}
    if suites and record.case.suite not in suites:
        return False
    exact = selection.get("exact", False)
    patterns = selection["only"]
    return not patterns or any(pattern == record.id if exact else selects(pattern, record.id) for pattern in patterns)


def _decided(record: Record) -> bool:
    return record.failed or record.seen == "pass"


def _alike(old: Record, new: Record) -> bool:
    """Return True if two failures have the same text, apart from numbers."""
    return (old.kind, normalised(old.message)) == (new.kind, normalised(new.message))


def text_lines(diff: RunDiff, width: int = COLUMNS) -> Iterator[str]:
    """Yield the difference as people read it on a terminal of `width` columns."""
    base, head = _titles(diff)
    yield from wrapped(f"base  {base}", width, rest=6)
    yield from wrapped(f"head  {head}", width, rest=6)
    yield ""
    for name, meaning in CLASSES.items():
        yield f"  {len(getattr(diff, name)):6,} {name:8} {meaning}"
    yield ""
    yield from wrapped(diff.compared, width, first=2, rest=4)
    for cause in diff.causes:
        yield ""
        yield from wrapped(f"{cause.level} {cause.headline}: {cause.message}", width, first=2, rest=6)
        for line in explained(cause):
            yield from wrapped(line, width, first=6, rest=8)
        yield printable(f"      {repro(cause.case, diff.head.header)}")
    for name in ("changed", "lost"):
        records = getattr(diff, name)
        if records:
            yield ""
            more = f" and {len(records) - 3:,} more" if len(records) > 3 else ""
            named = f"{name}: {', '.join(record.id for record in records[:3])}{more}"
            yield from wrapped(named, width, first=2, rest=6)


def _titles(diff: RunDiff) -> tuple[str, str]:
    """Return the engines of both runs; the day and minute too where the same engine ran twice."""
    base, head = (title(run.header) for run in (diff.base, diff.head))
    if base != head:
        return base, head
    base_start, head_start = (str(run.header.get("started", "")) for run in (diff.base, diff.head))
    return f"{base}, started {minute(base_start)}", f"{head}, started {minute(head_start)}"


def minute(started: str) -> str:
    """Return day and minute of a time in ISO format, as people read it."""
    return started[:16].replace("T", " ")


def markdown_lines(diff: RunDiff) -> Iterator[str]:
    """Yield the difference as Markdown for the summary of a CI job."""
    yield f"### verispec: {plural(len(diff.new), 'new failing case')}, {len(diff.fixed):,} fixed"
    yield ""
    yield " to ".join(f"`{each}`" for each in _titles(diff))
    yield ""
    yield "| cases | class | meaning |"
    yield "| ---: | --- | --- |"
    for name, meaning in CLASSES.items():
        yield f"| {len(getattr(diff, name)):,} | {name} | {meaning} |"
    yield ""
    yield f"{diff.compared[0].upper()}{diff.compared[1:]}."
    for cause in diff.causes:
        yield ""
        yield f"**{cause.level} {cause.headline}**: {escaped(cause.message)}"
        yield ""
        yield from (f"- {escaped(line)}" for line in explained(cause))
        yield f"- `{repro(cause.case, diff.head.header)}`"

"""The verdict on a run: counts, causes, gaps, and the exit code that they come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verispec import exits
from verispec.expectations import Expectation
from verispec.report.causes import Cause, Gap, fold, gaps
from verispec.run.record import CATEGORIES, FAILING, Record
from verispec.run.runfile import Run


@dataclass(frozen=True, slots=True)
class Cell:
    """Counts of one op and category."""

    passed: int = 0
    failed: int = 0
    known: int = 0
    undecided: int = 0

    @property
    def total(self) -> int:
        return self.passed + self.failed + self.known + self.undecided


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a run comes to.

    `causes` are unexpected failures, `known` those that expectations name, `stale` cases that were expected
    to fail and pass, `unmatched` entries that select no case.
    """

    run: Run
    counts: Mapping[str, int]
    causes: tuple[Cause, ...]
    known: tuple[Cause, ...]
    gaps: tuple[Gap, ...]
    stale: tuple[Record, ...]
    unmatched: tuple[Expectation, ...]

    @property
    def complete(self) -> bool:
        return bool(self.run.footer.get("complete"))

    @property
    def failures(self) -> int:
        return sum(self.counts.get(outcome, 0) for outcome in FAILING)

    def table(self) -> dict[str, dict[str, Cell]]:
        """Counts by op and category, ops by suite and name, categories that nobody uses left out."""
        tally: dict[str, dict[str, Counter[str]]] = {}
        for record in sorted(self.run.records, key=lambda r: (r.case.suite, r.case.subject)):
            tally.setdefault(record.case.subject, {}).setdefault(record.category, Counter())[_column(record)] += 1
        return {s: {c: Cell(**row[c]) for c in CATEGORIES if c in row} for s, row in tally.items()}

    def modes(self) -> dict[str, dict[str, Cell]]:
        """Counts of generated text by what drafts and by what is judged; empty where nothing was generated."""
        tally: dict[str, dict[str, Counter[str]]] = {}
        for record in sorted(self.run.records, key=lambda r: (r.case.suite, r.case.subject)):
            draft = dict(record.case.params).get("draft")
            if record.category == "text" and draft:
                tally.setdefault(draft, {}).setdefault(record.case.subject, Counter())[_column(record)] += 1
        return {draft: {s: Cell(**row[s]) for s in row} for draft, row in sorted(tally.items())}

    def exit_code(self, *, errors_only: bool = False) -> int:
        """BAD for any unexpected failure (of level error, if `errors_only`), stale or unmatched expectation; then
        CANNOT_TELL when a test broke, the run is not complete or nothing passed or failed."""
        if any(cause.level == "error" or not errors_only for cause in self.causes) or self.stale or self.unmatched:
            return exits.BAD
        decided = sum(self.counts.get(o, 0) for o in ("pass", "xfail", *FAILING))
        if not self.complete or self.counts.get("error") or not decided:
            return exits.CANNOT_TELL
        return exits.GOOD

    def to_json(self, *, errors_only: bool = False) -> dict[str, Any]:
        return {
            "header": dict(self.run.header),
            "counts": dict(self.counts),
            "table": {
                subject: {
                    category: {
                        "passed": cell.passed,
                        "failed": cell.failed,
                        "known": cell.known,
                        "undecided": cell.undecided,
                    }
                    for category, cell in row.items()
                }
                for subject, row in self.table().items()
            },
            "causes": [cause.to_json() for cause in self.causes],
            "known": [cause.to_json() for cause in self.known],
            "gaps": [gap.to_json() for gap in self.gaps],
            "stale": [record.id for record in self.stale],
            "unmatched": [entry.to_json() for entry in self.unmatched],
            "warnings": list(self.run.footer.get("warnings", ())),
            "complete": self.complete,
            "exit": self.exit_code(errors_only=errors_only),
        }


def summarise(run: Run) -> RunSummary:
    """The verdict on `run`, from nothing but what its file holds."""
    unexpected = [r for r in run.records if r.outcome != "xfail"]
    expected = [r for r in run.records if r.outcome in ("xfail", "pass")]
    return RunSummary(
        run=run,
        counts=Counter(r.outcome for r in run.records),
        causes=fold(unexpected),
        known=fold(expected),
        gaps=gaps(run.records),
        stale=tuple(r for r in run.records if r.outcome == "xpass"),
        unmatched=tuple(Expectation(**entry) for entry in run.footer.get("unmatched", ())),
    )


def _column(record: Record) -> str:
    if record.outcome == "xfail":
        return "known"
    if record.failed:
        return "failed"
    return "passed" if record.seen == "pass" else "undecided"

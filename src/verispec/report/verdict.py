"""The summary of a run: counts, causes, gaps, and the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verispec import exits
from verispec.expectations import Expectation
from verispec.report.cause import Cause, Gap
from verispec.report.causes import fold, gaps
from verispec.report.certificate import fails_together
from verispec.run.record import CATEGORIES, FAILING, KNOWN, Record
from verispec.run.runfile import Run


@dataclass(frozen=True, slots=True)
class Cell:
    """Counts of one op and category."""

    passed: int = 0
    failed: int = 0
    known: int = 0
    undecided: int = 0
    absent: int = 0

    @property
    def total(self) -> int:
        """Number of cases."""
        return self.decided + self.undecided + self.absent

    @property
    def decided(self) -> int:
        """Number of cases with a result that says something about the engine."""
        return self.passed + self.failed + self.known


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The summary of a run.

    Attributes:
        run: results of the run.
        counts: cases by outcome.
        causes: unexpected failures, by cause.
        known: expected failures, by cause.
        gaps: undecided cases, by reason.
        stale: cases that were expected to fail and pass.
        unmatched: expectations that match no case.
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
        """True if the run reached its last case."""
        return bool(self.run.footer.get("complete"))

    @property
    def shortfalls(self) -> tuple[str, ...]:
        """Return how the run tested less than it should."""
        return tuple(self.run.footer.get("shortfalls", ()))

    @property
    def unknown(self) -> tuple[str, ...]:
        """Return outcomes that this version does not know; another version wrote them."""
        return tuple(sorted(outcome for outcome in self.counts if outcome not in KNOWN))

    @property
    def absent(self) -> int:
        """Return the number of cases of parts that the engine does not have."""
        return sum(not record.applies for record in self.run.records)

    @property
    def undecided(self) -> int:
        """Return the number of other cases that tell nothing about the engine."""
        return sum(not record.decided for record in self.run.records) - self.absent

    @property
    def failures(self) -> int:
        """Number of failing cases that no file expects."""
        return sum(self.counts.get(outcome, 0) for outcome in FAILING)

    def table(self) -> dict[str, dict[str, Cell]]:
        """Return counts by op and category, ops by suite and name, without unused categories."""
        tally: dict[str, dict[str, Counter[str]]] = {}
        for record in sorted(self.run.records, key=lambda r: (r.case.suite, r.case.subject)):
            tally.setdefault(record.case.subject, {}).setdefault(record.category, Counter())[_column(record)] += 1
        return {s: {c: Cell(**row[c]) for c in CATEGORIES if c in row} for s, row in tally.items()}

    def modes(self) -> dict[str, dict[str, Cell]]:
        """Return counts of generated text by drafter and test; empty where nothing was generated."""
        tally: dict[str, dict[str, Counter[str]]] = {}
        for record in sorted(self.run.records, key=lambda r: (r.case.suite, r.case.subject)):
            draft = dict(record.case.params).get("draft")
            if record.category == "text" and draft:
                tally.setdefault(draft, {}).setdefault(record.case.subject, Counter())[_column(record)] += 1
        return {draft: {s: Cell(**row[s]) for s in row} for draft, row in sorted(tally.items())}

    def exit_code(self, *, errors_only: bool = False) -> int:
        """Return the exit code.

        BAD for an unexpected failure (of level error, if `errors_only`), for a stale or unmatched expectation, and
        where statistical tests that pass fail together. Otherwise CANNOT_TELL when a test broke, the run is not
        complete, it tested too little, or an outcome is unknown.
        """
        if any(cause.level == "error" or not errors_only for cause in self.causes) or self.stale or self.unmatched:
            return exits.BAD
        if fails_together(self.run.records):
            return exits.BAD
        decided = self.undecided + self.absent < len(self.run.records)
        if self.complete and decided and not (self.counts.get("error") or self.shortfalls or self.unknown):
            return exits.GOOD
        return exits.CANNOT_TELL

    def to_json(self, *, errors_only: bool = False) -> dict[str, Any]:
        """Return the summary as a JSON object, with the exit code for `errors_only`."""
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
                        "absent": cell.absent,
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
            "shortfalls": list(self.shortfalls),
            "warnings": list(self.run.footer.get("warnings", ())),
            "complete": self.complete,
            "exit": self.exit_code(errors_only=errors_only),
        }


def summarise(run: Run) -> RunSummary:
    """Return the summary of `run`, which a run holds in memory and `report` reads from its file."""
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


def sources(verdict: RunSummary) -> dict[str, str]:
    """Return the name of the cause behind each case that is a consequence, by case id."""
    return {case: cause.name for cause in (*verdict.known, *verdict.causes) for case in cause.consequences}


def _column(record: Record) -> str:
    if record.outcome == "xfail":
        return "known"
    if record.failed:
        return "failed"
    if record.seen == "pass":
        return "passed"
    return "undecided" if record.applies else "absent"

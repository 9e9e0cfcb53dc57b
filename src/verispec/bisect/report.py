"""The report of `verispec bisect`, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.text import Text

from verispec import __version__, exits
from verispec.bisect.history import Revision
from verispec.bisect.search import RevisionResult, SearchResult
from verispec.report.signatures_text import print_finding, print_folded
from verispec.static import Finding
from verispec.terminal import printable

FORMAT = "verispec/bisect/1"


@dataclass(frozen=True, slots=True)
class BisectReport:
    """A search and its purpose.

    Args:
        candidates: describe `result.candidates`.
        appeared: findings of the first bad revision; empty for a case.
        later: findings that came after it.
        reasons: reasons of a case, by revision: how it fails, or why it cannot be tested.
        repro: command that shows the failure of a case.
    """

    history: str
    good: Revision
    bad: Revision
    sought: str
    result: SearchResult
    candidates: tuple[Revision, ...]
    appeared: tuple[Finding, ...]
    later: int
    seconds: float
    reasons: Mapping[str, str] = field(default_factory=dict)
    repro: str = ""

    @property
    def exit_code(self) -> int:
        """GOOD if the search found one first bad revision, else CANNOT_TELL."""
        return exits.GOOD if self.result.first_bad else exits.CANNOT_TELL

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object of the format `FORMAT`."""
        return {
            "format": FORMAT,
            "verispec": __version__,
            "history": self.history,
            "good": asdict(self.good),
            "bad": asdict(self.bad),
            "sought": self.sought,
            "first_bad": asdict(self.candidates[0]) if self.result.first_bad else None,
            "candidates": [asdict(revision) for revision in self.candidates],
            "appeared": [finding.to_json() for finding in self.appeared],
            "later": self.later,
            "judged": len(self.result.verdicts),
            "total": self.result.total,
            "rounds": self.result.rounds,
            "tested": self.result.tested,
            "verdicts": {name: verdict.value for name, verdict in self.result.verdicts.items()},
            "reasons": dict(self.reasons),
            "repro": self.repro,
            "seconds": round(self.seconds, 3),
            "exit_code": self.exit_code,
        }

    @property
    def failure(self) -> str:
        """Return the failure of the case at the first bad revision; empty for a static search."""
        return self.reasons.get(self.candidates[-1].name, "")


def print_text(outcome: BisectReport, console: Console) -> None:
    """Print the search for people."""
    if outcome.result.first_bad:
        first = outcome.candidates[0]
        console.print(Text.assemble((printable(first.short), "bold red"), " is the first bad revision"))
        _print_revision(first, console)
        if len(first.parents) > 1:
            sides = ", ".join(parent[:12] for parent in first.parents)
            console.print(f"  It is a merge of {sides}: each of them is good, the fault comes from joining them.")
    else:
        console.print("The first bad revision is one of these; all but the last could not be tested:")
        for revision in outcome.candidates:
            console.print(f"{revision.short}", style="bold")
            _print_revision(revision, console)
            if (reason := outcome.reasons.get(revision.name)) and revision != outcome.candidates[-1]:
                print_folded(f"cannot be tested: {reason}", console, first=2)
    if outcome.failure:
        print_folded(f"{'fails':8}{outcome.failure}", console, first=2, rest=10)
        console.print(Text(printable(f"  {'see':8}{outcome.repro}")), soft_wrap=True)  # whole, to be copied
    console.print()
    for finding in outcome.appeared:
        print_finding(finding, console)
    if outcome.later:
        console.print(f"{outcome.later} more came later; --finding FINGERPRINT searches for one of them")
    count = Counter(outcome.result.verdicts.values())
    untold = f", {count[RevisionResult.CANNOT_TELL]} could not be told" if count[RevisionResult.CANNOT_TELL] else ""
    judged = f"{len(outcome.result.verdicts)} revisions tested of {outcome.result.total + 1}"
    good, bad = count[RevisionResult.GOOD], count[RevisionResult.BAD]
    more = outcome.result.tested - len(outcome.result.verdicts)
    ahead = f", {more} more ahead, {outcome.result.rounds} rounds" if more else ""
    console.print(f"{judged}: {good} good, {bad} bad{untold}{ahead} ({outcome.seconds:.1f} s)")


def _print_revision(revision: Revision, console: Console) -> None:
    for label, value in (("author", revision.author), ("date", revision.date), ("subject", revision.subject)):
        if value:
            print_folded(f"{label:8}{value}", console, first=2, rest=10)

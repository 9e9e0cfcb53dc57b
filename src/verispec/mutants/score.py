"""The score of a campaign: how many mutants of each file and operator were killed, and how."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from verispec.errors import VerispecError
from verispec.mutants.model import Mutant, MutantResult, Verdict

TARGET = 0.97
TARGET_OWN = 0.90
"""The share of mutants that are not equivalent to be killed at all, and by a clause of the mutated op."""


@dataclass(frozen=True, slots=True)
class Equivalent:
    """An entry of the reviewed list: mutants that change nothing that a caller can see, and why."""

    file: str
    before: str
    after: str
    reason: str
    text: str = ""
    trigger: str = ""
    operator: str = ""
    function: str = ""
    column: int = 0
    """Column of the fault, where a line has its code twice; 0 matches any."""

    def matches(self, mutant: Mutant) -> bool:
        """Return True if the entry matches `mutant`; an empty field matches anything, ``*`` at the end any ending."""
        pairs = (
            (self.file, f"{mutant.layer}/{mutant.file}"),
            (self.before, mutant.before),
            (self.after, mutant.after),
            (self.text, mutant.text),
            (self.trigger, mutant.trigger),
            (self.operator, mutant.operator),
            (self.function, mutant.function),
        )
        return self.column in (0, mutant.column) and all(_fits(pattern, value) for pattern, value in pairs)


def _fits(pattern: str, value: str) -> bool:
    if not pattern:
        return True
    return value.startswith(pattern[:-1]) if pattern.endswith("*") else value == pattern


def reviewed() -> tuple[Equivalent, ...]:
    """Return the reviewed list of equivalent mutants.

    Raises:
        VerispecError: V-MUT-LIST, an entry has no reason or matches every mutant.
    """
    text = resources.files("verispec.mutants").joinpath("equivalent.toml").read_text(encoding="utf-8")
    entries = tuple(Equivalent(**entry) for entry in tomllib.loads(text).get("equivalent", []))
    for entry in entries:
        if not entry.reason or not (entry.text or entry.before or entry.operator):
            raise VerispecError(
                "V-MUT-LIST",
                "an entry needs a reason and something that it matches",
                where=f"equivalent.toml: {entry}",
                hint="give it a reason, and at least one of text, before and operator",
            )
    return entries


def entry_of(mutant: Mutant, entries: Iterable[Equivalent]) -> Equivalent | None:
    """Return the first entry that matches `mutant`, or None."""
    return next((entry for entry in entries if entry.matches(mutant)), None)


def with_list(results: Iterable[MutantResult], entries: Iterable[Equivalent]) -> list[MutantResult]:
    """Return the results with listed survivors as equivalent.

    A listed mutant that a case kills shows a wrong entry; its reason then says so.
    """
    entries = tuple(entries)
    out = []
    for result in results:
        entry = entry_of(result.mutant, entries)
        if entry and result.verdict in (Verdict.SURVIVED, Verdict.NOT_REACHED, Verdict.CRASHED):
            result.verdict, result.reason = Verdict.EQUIVALENT, entry.reason
        elif entry and result.verdict in (Verdict.KILLED, Verdict.KILLED_ELSEWHERE):
            result.reason = f"WRONG ENTRY in the list: {entry.reason}"
        out.append(result)
    return out


@dataclass(slots=True)
class FateTally:
    """Counts of results."""

    counts: Counter[str] = field(default_factory=Counter)

    @property
    def judged(self) -> int:
        """Mutants that are neither equivalent nor invalid."""
        return sum(n for v, n in self.counts.items() if v not in (Verdict.EQUIVALENT, Verdict.INVALID))

    @property
    def killed(self) -> int:
        """Number of mutants that a failing case killed."""
        return self.counts[Verdict.KILLED] + self.counts[Verdict.KILLED_ELSEWHERE]

    @property
    def share(self) -> float:
        """Share of tested mutants that a failing case killed."""
        return self.killed / self.judged if self.judged else 1.0

    @property
    def own_share(self) -> float:
        """Fraction of the counted mutants that a clause of the mutated op killed."""
        return self.counts[Verdict.KILLED] / self.judged if self.judged else 1.0

    def to_json(self) -> dict[str, Any]:
        """Return counts and fractions as a JSON object."""
        counts = {str(verdict): self.counts[verdict] for verdict in Verdict}
        return {**counts, "judged": self.judged, "share": round(self.share, 4), "own_share": round(self.own_share, 4)}


@dataclass(slots=True)
class Score:
    """The tallies of a campaign."""

    results: list[MutantResult]

    def by(self, key: Callable[[MutantResult], str]) -> Mapping[str, FateTally]:
        """Return one tally per value of `key`, sorted."""
        tallies: dict[str, FateTally] = {}
        for result in self.results:
            tallies.setdefault(key(result), FateTally()).counts[result.verdict] += 1
        return dict(sorted(tallies.items()))

    @property
    def layers(self) -> Mapping[str, FateTally]:
        """Tallies by layer."""
        return self.by(lambda r: r.mutant.layer)

    @property
    def files(self) -> Mapping[str, FateTally]:
        """Tallies by file."""
        return self.by(lambda r: f"{r.mutant.layer}/{r.mutant.file}")

    @property
    def operators(self) -> Mapping[str, FateTally]:
        """Tallies by kind of fault."""
        return self.by(lambda r: r.mutant.operator)

    @property
    def triggers(self) -> Mapping[str, FateTally]:
        """Tallies by trigger."""
        return self.by(lambda r: r.mutant.trigger)

    @property
    def survivors(self) -> list[MutantResult]:
        """Return the surviving mutants, then those that only crashed."""
        open_ = (Verdict.SURVIVED, Verdict.NOT_REACHED, Verdict.CRASHED)
        chosen = [r for r in self.results if r.verdict in open_]
        return sorted(chosen, key=lambda r: (open_.index(r.verdict), r.mutant.layer, r.mutant.file, r.mutant.line))

    @property
    def is_good(self) -> bool:
        """True if every layer reaches both targets."""
        return all(t.share >= TARGET and t.own_share >= TARGET_OWN for t in self.layers.values())

    def to_json(self) -> dict[str, Any]:
        """Return targets, tables and survivors as a JSON object."""
        tables = {
            name: {key: tally.to_json() for key, tally in getattr(self, name).items()}
            for name in ("layers", "files", "operators", "triggers")
        }
        return {
            "good": self.is_good,
            "targets": {"share": TARGET, "own_share": TARGET_OWN},
            **tables,
            "survivors": [r.to_json() for r in self.survivors],
        }

"""One statistical test of a run: its weight, its sizes, and its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from verispec.judge._failure import Failure, Inconclusive, Kind, Mismatch
from verispec.judge.statistics.budget import LEVEL, weight_of
from verispec.judge.statistics.coupling import Coupling, bound
from verispec.judge.statistics.evidence import Evidence
from verispec.judge.statistics.faults import Bet

BUDGETS = {"quick": 0.1, "standard": 1.0, "nightly": 8.0}
"""Sample sizes by name, as multiples of the standard ones."""
CLEAR_LEAD = 3.0
"""log10 by which the best fault must lead the next, or sampling goes on to name it."""
PATIENCE = 4
"""Maximum size of the sample that names the fault, as a multiple of the sample at which the test failed."""
LONG_PATIENCE = 16
"""The same where an impossible outcome failed the test, and other outcomes have yet to tell the fault."""
BEST = 6
"""Explanations that a record keeps."""


@dataclass
class Trial:
    """A statistical test while it runs.

    Args:
        case: id of the case.
        seed: seed of everything the case draws.
        run_seed: seed of the run, for the message.
        budget: one of `BUDGETS`.
        record: function that receives the report's facts of this test.
    """

    case: str
    seed: int
    run_seed: int
    budget: str = "standard"
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def weight(self) -> float:
        """The case's part of the run's budget."""
        return weight_of(self.case)

    @property
    def level(self) -> float:
        """Level of a test that decides by a p-value."""
        return LEVEL * self.weight

    def size(self, standard: int) -> int:
        """Return the sample size of this budget, as a multiple of the `standard` one."""
        return max(int(standard * BUDGETS[self.budget]), 1)

    def collect(self, evidence: Evidence, cap: int, step: Callable[[], None], effects: Sequence[Bet] = ()) -> None:
        """Call `step`, which adds outcomes, until `cap` units were seen or the evidence decides; then conclude.

        A test that fails goes on for a while, until one fault explains it clearly better than the next.

        Args:
            evidence: evidence of this test.
            cap: largest sample.
            step: adds outcomes to the evidence.
            effects: bets that the test is for; it ends once all of them are excluded.
        """
        failed_at = 0
        while evidence.count < cap:
            step()
            if not evidence.failed:
                if effects and evidence.excludes(effects):
                    break
                continue
            failed_at = failed_at or evidence.count
            patience = PATIENCE if evidence.named else LONG_PATIENCE
            clear = evidence.named and _lead(evidence) >= CLEAR_LEAD
            if clear or evidence.count >= patience * failed_at:
                break
        self.record["failed_at"] = failed_at
        self.conclude(evidence, cap)

    def conclude(self, evidence: Evidence, cap: int) -> None:
        """Record the evidence.

        Args:
            evidence: evidence of this test.
            cap: largest sample, for the record.

        Raises:
            Mismatch: the evidence fails the run by itself.
        """
        self.record.update(summary(evidence, cap, self.weight))
        if evidence.failed:
            message = failure_message(evidence, cap, self.run_seed)
            best = [f"{e.label} (E 1e{e.log10:.0f})" for e in evidence.explanations()[:BEST]]
            sample = f"{evidence.count:,} of at most {cap:,} {evidence.unit}"
            details: dict[str, Any] = {"sample": sample, "explanations, the best first": best}
            if evidence.impossible:
                details["impossible outcomes"] = evidence.impossible[:3]
            if evidence.views:
                worst = max(evidence.views, key=lambda view: view.log_evidence)
                details[f"counts of {worst.name}, in cells of equal probability"] = worst.table()
            raise Mismatch(Failure(Kind.LAW, message, total=evidence.count, details=details))

    def conclude_coupling(self, couplings: Sequence[Coupling]) -> None:
        """Record the `couplings` of one sampler.

        Raises:
            Mismatch: a token is not that of its random numbers.
            Inconclusive: the engine does not report its random numbers.
        """
        requests, differing = sum(c.requests for c in couplings), sum(c.differing for c in couplings)
        if not requests:
            raise Inconclusive("no request reported its random numbers; return Draws for seeded requests from trace()")
        self.record["coupling"] = {
            "requests": requests,
            "tokens": sum(c.tokens for c in couplings),
            "differing": differing,
            "total_variation": bound(requests, differing),
            "brackets": couplings[0].brackets(),
        }
        for wrong in (text for c in couplings for text in c.wrong):
            raise Mismatch(Failure(Kind.VALUE, f"{wrong}; --seed {self.run_seed} repeats it", total=requests))


def _lead(evidence: Evidence) -> float:
    best = evidence.best_bets()
    return best[0][1] - best[1][1] if len(best) > 1 else math.inf


def summary(evidence: Evidence, cap: int, weight: float) -> dict[str, Any]:
    """Return the part of `evidence` that a report shows, as JSON.

    Args:
        evidence: evidence of a test.
        cap: largest sample.
        weight: part of the run's budget.
    """
    best = evidence.explanations()[:BEST]
    lines = [bet for bet, _ in evidence.best_bets()[:3]]
    places = [list(evidence.bets).index(bet) for bet in lines]
    return {
        "log10_e": None if evidence.impossible else round(evidence.log_e / math.log(10), 3),
        "log10_limit": round(evidence.limit / math.log(10), 3),
        "weight": weight,
        "count": evidence.count,
        "cap": cap,
        "unit": evidence.unit,
        "impossible": evidence.impossible[:3],
        "best": [{"label": e.label, "log10": round(float(e.log10), 2), "issues": list(e.issues)} for e in best],
        "excluded": as_list(evidence.excluded()),
        "found": as_list(evidence.found()),
        "all": as_list(evidence.bets),
        "trail": {
            "count": [count for count, _, _ in evidence.trail],
            "log10_e": [None if math.isinf(e) else round(e / math.log(10), 3) for _, e, _ in evidence.trail],
            "bets": {
                bet.label: [round(float(logs[at]) / math.log(10), 3) for _, _, logs in evidence.trail]
                for bet, at in zip(lines, places, strict=True)
            },
        },
        "places": {view.name: view.counts.astype(int).tolist() for view in evidence.views},
        **evidence.notes,
    }


def as_list(bets: Sequence[Bet]) -> list[dict[str, Any]]:
    """Return `bets` as JSON objects with the keys "where", "fault" and "size"."""
    return [{"where": bet.where, "fault": bet.key, "size": bet.size} for bet in bets]


def failure_message(evidence: Evidence, cap: int, run_seed: int) -> str:
    """Return a message with the outcome, the two best explanations, their sources, and the seed that repeats it.

    Args:
        evidence: evidence of a test.
        cap: largest sample.
        run_seed: seed of the run.
    """
    of = f" of {cap:,}" if evidence.count < cap else ""  # the last step may end beyond the largest sample
    after = f"after {evidence.count:,}{of} {evidence.unit}"
    power = evidence.limit / math.log(10)
    if evidence.impossible:
        head = f"an impossible outcome {after}: {evidence.impossible[0]}"
    else:
        head = f"E = 1e{evidence.log_e / math.log(10):.1f} (limit 1e{power:.1f}) {after}"
    best, *others = evidence.explanations()
    named = f'best explained by "{best.label}" (E 1e{best.log10:.0f})'
    different = next((e for e in others if e.label.partition(" (")[0] != best.label.partition(" (")[0]), None)
    if different:
        named += f', next "{different.label}" (E 1e{different.log10:.0f})'
    known = f"; known from {', '.join(best.issues)}" if best.issues else ""
    return f"{head}; {named}{known}; --seed {run_seed} repeats it"

"""The page's part on statistical tests, accepted drafts and time: pictures, and the faults that a pass excludes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from verispec.report import pictures
from verispec.report.certificate import Certificate, evidence_of, explanation_of, family_of, is_test
from verispec.report.text import plural
from verispec.run.record import Record, category_of
from verispec.run.runfile import Run

DRAWN = 40
"""Tests whose pictures a page shows: the failing ones, then the first of each op and clause."""

EXCLUDED = {
    "exact": "An exact case excludes a wrong, missing or additional element in any output, for the arguments of the "
    "case, whatever surrounding memory holds. It says nothing about other arguments.",
    "generated": "A generated case excludes the same for each call that Hypothesis wrote in it. Other calls of the "
    "same kind may still fail.",
    "metamorphic": "A metamorphic case excludes that requests influence each other in the way that it varies.",
    "law": "A statistical test excludes the faults in the table below, down to the size that it names. A smaller "
    "fault, or one that nobody named, may pass.",
    "live": "A signature case excludes that a caller cannot bind to the implementation that it reaches here.",
    "text": "A generation case excludes a token that the float64 model cannot produce. It says nothing about other "
    "prompts.",
}
"""Faults that a passing case of each category excludes."""


def statistics_of(run: Run, sources: Mapping[str, str]) -> dict[str, Any]:
    """Return the page's facts on a run's statistical tests, accepted drafts and time.

    Args:
        run: results of a run.
        sources: name of the cause behind each case that is a consequence, by case id.
    """
    certificate = Certificate(replace(run, records=tuple(record for record in run.records if is_test(record))))
    tests = [record for record in certificate.tests if "trail" in record.evidence]
    families = [f for f in certificate.families if any(f in row["families"] for row in certificate.excluded)]
    return {
        "excludes": list(_excludes(run.records)),
        "statement": certificate.statement(sources) if certificate.tests else "",
        "title": f"{plural(len(tests), 'statistical test')} with evidence E"
        + (f", of {len(certificate.run.records)}" if len(certificate.run.records) > len(tests) else ""),
        "spent": list(_spent(run)),
        "faults": [
            {
                "where": row["where"],
                "fault": row["fault"],
                "sizes": [_size(row["families"], f) for f in families],
            }
            for row in certificate.excluded
        ],
        "families": families,
        "noise": _noise(certificate),
        "tests": [_test(record, sources) for record in tests],
        "drawn": [_pictures(record, sources) for record in _chosen(tests)],
        "acceptance": list(_acceptance(run.records)),
    }


def _size(families: Mapping[str, str], family: str) -> str:
    return (families[family] or "not excluded") if family in families else "not tested"


def _excludes(records: Sequence[Record]) -> Iterator[tuple[str, str]]:
    passing = {category_of(record.case) for record in records if record.seen == "pass"}
    for category, text in EXCLUDED.items():
        if category in passing:
            yield category, text


def _spent(run: Run) -> Iterator[tuple[str, str]]:
    """Yield the expenses of the run: time by suite and op, and of the error budget."""
    seconds: dict[str, float] = defaultdict(float)
    for record in run.records:
        seconds[f"{record.case.suite}/{record.case.subject}"] += record.seconds
    total = sum(seconds.values())
    workers = plural(run.header.get("processes", 1), "worker")
    yield "time in cases", f"{total:,.0f} s, shared by {workers}; without starts of processes and repeated cases"
    for op, spent in sorted(seconds.items(), key=lambda item: -item[1])[:5]:
        if total:
            yield op, f"{spent:,.0f} s, {spent / total:.0%}"
    weights = [record.evidence["weight"] for record in run.records if "weight" in record.evidence]
    if weights:
        share = f"{sum(weights):.0%} of the false-alarm budget of 1e-6 per run"
        yield "statistical tests", f"{len(weights)} with {share}, sample sizes {run.header.get('budget', 'standard')}"


def _noise(certificate: Certificate) -> str:
    rows = [
        (f"{record.case.clause} {family_of(record)}", record.evidence)
        for record in certificate.tests
        if "noise" in record.evidence or "needles" in record.evidence
    ]
    return pictures.noise_table(rows) if rows else ""


def _test(record: Record, sources: Mapping[str, str]) -> dict[str, str]:
    """Return one row of the table of tests."""
    evidence = record.evidence
    found, limit = evidence_of(record)
    return {
        "id": record.id,
        "outcome": record.outcome,
        "count": f"{evidence.get('count', 0):,} {evidence.get('unit', '')}",
        "e": found,
        "limit": limit,
        "best": explanation_of(record, sources) or "none",
    }


def _chosen(tests: Sequence[Record]) -> list[Record]:
    first: dict[tuple[str, str, str], Record] = {}
    for record in tests:
        first.setdefault((record.case.suite, record.case.subject, record.case.clause), record)
    failing = [record for record in tests if record.failed]
    return [*failing, *(record for record in first.values() if not record.failed)][:DRAWN]


def _pictures(record: Record, sources: Mapping[str, str]) -> dict[str, Any]:
    evidence: Mapping[str, Any] = record.evidence
    if record.id in sources:  # whose bets are misled
        evidence = {**evidence, "trail": {**evidence["trail"], "bets": {}}}
    drawn = [pictures.evidence_over_tokens(evidence, "Evidence against losslessness")]
    if evidence.get("reliability"):
        drawn.append(pictures.reliability(evidence))
    return {"id": record.id, "outcome": record.outcome, "pictures": drawn, "places": pictures.places(evidence)}


def _acceptance(records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """Yield accepted drafts per drafter: verifications, mean length, and the rate of each position."""
    drafts: dict[str, int] = defaultdict(int)
    accepted: dict[str, list[int]] = {}
    for record in records:
        counts = record.acceptance
        if not counts.get("accepted"):
            continue
        name = dict(record.case.params).get("draft", "unnamed")
        drafts[name] += counts["drafts"]
        sums = accepted.setdefault(name, [0] * len(counts["accepted"]))
        sums.extend([0] * (len(counts["accepted"]) - len(sums)))
        for place, count in enumerate(counts["accepted"]):
            sums[place] += count
    for name, sums in sorted(accepted.items()):
        if drafts[name]:
            rates = [count / drafts[name] for count in sums]
            yield {
                "draft": name,
                "verifications": f"{drafts[name]:,}",
                "mean": f"{1 + sum(rates):.2f}",
                "rates": [(f"{rate:.0%}", round(100 * rate, 1)) for rate in rates],
            }

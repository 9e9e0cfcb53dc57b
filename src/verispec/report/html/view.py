"""Arrange runs for the page: plain values, in the order and in the words that the template shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from verispec import exits
from verispec.cases.glosses import GLOSSES
from verispec.report.brief import CONTRACTS, INSTALL, TITLE, brief_line, ids_line, introduction, met, packaging
from verispec.report.case import detail_lines
from verispec.report.cause import Cause
from verispec.report.certificate import EVIDENCE, message_of
from verispec.report.diff import CLASSES, RunDiff
from verispec.report.html.statistics import statistics_of
from verispec.report.matrix import matrix
from verispec.report.text import (
    GAPS,
    LEGEND,
    circumstances,
    complaints,
    facts,
    gap_line,
    kinds,
    outcomes,
    plural,
    repro,
    shown,
    summary,
    title,
)
from verispec.report.verdict import RunSummary, sources, summarise
from verispec.run.record import SAVED, Record

MEANING = {
    exits.GOOD: "no unexpected result",
    exits.BAD: "unexpected failures, or known ones that pass",
    exits.CANNOT_TELL: "too little was tested",
}
"""Meanings of `RESULT`, beside it."""
RESULT = {exits.GOOD: "good", exits.BAD: "bad", exits.CANNOT_TELL: "cannot tell"}
EXAMPLES = 5
"""Wrong elements that a cause shows; `verispec repro` shows all."""
SHORT = 80
"""Characters of a detail that is shown without a click."""
MESSAGE = 400
"""Characters of a message in the list of all cases, which must stay small for 10,000 of them."""


def page_of(
    summaries: Sequence[RunSummary], findings: Sequence[Mapping[str, Any]], diff: RunDiff | None = None
) -> dict[str, Any]:
    """Return everything that the template shows."""
    runs = [_run(summary) for summary in summaries]
    names = Counter(run["title"] for run in runs)
    rows = list(matrix(summaries))
    for run in runs:
        if names[run["title"]] > 1:  # by when they began: an engine is tested more than once
            run["title"] = f"{run['title']}, {run['environment']['started'][:16].replace('T', ' ')}"
    return {
        "legend": LEGEND,
        "met": TITLE,
        "install": f"{CONTRACTS} {INSTALL}",
        "evidence": EVIDENCE,
        "title": runs[0]["whole_title"] if len(runs) == 1 else f"{len(runs)} runs",
        "runs": runs,
        "matrix": [row for row in rows if not row["absent"]],
        "absent": [row["op"] for row in rows if row["absent"]],
        "parameters": _parameters(record for s in summaries for record in s.run.records if record.failed),
        "cases": [row for number, s in enumerate(summaries) for row in _case_rows(number, s)],
        "static": [_static(report) for report in findings],
        "diff": _diff(diff) if diff else None,
    }


def _parameters(records: Iterable[Record]) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Return the parameters of the ids of `records`, each with its meaning and that of its values."""
    found: dict[str, set[str]] = {}
    for record in records:
        for name, value in record.case.params:
            found.setdefault(name, set()).add(value)
    return [
        (name, GLOSSES[name].text, [(v, GLOSSES[name].values[v]) for v in GLOSSES[name].values if v in found[name]])
        for name in sorted(found.keys() & GLOSSES.keys())
    ]


def _diff(diff: RunDiff) -> dict[str, Any]:
    head = summarise(diff.head)
    return {
        "classes": [(name, meaning, [r.id for r in getattr(diff, name)]) for name, meaning in CLASSES.items()],
        "causes": [_cause(cause, cause.level, head) for cause in diff.causes],
        "compared": diff.compared,
        "disjoint": diff.disjoint,
        "exit": diff.exit_code,
    }


def _run(run: RunSummary) -> dict[str, Any]:
    header, footer = run.run.header, run.run.footer
    engine, here = header["engine"], header["platform"]
    name = f"{engine['name']} {engine['version']} ({engine['device']})"
    environment = {
        **{str(name): str(value) for name, value in engine["details"].items()},
        "verispec": header["verispec"],
        "packages": ", ".join(f"{name} {version}" for name, version in here["packages"].items()),
        "machine": f"Python {here['python']}, {here['system']} {here['machine']}, {plural(here['cpus'], 'core')}",
        "seed": str(header["seed"]),
        "started": header["started"],
        "command": " ".join(header["command"]),
    }
    return {
        "title": name,
        "whole_title": f"{name}, packaged as {packaging(engine)}" if packaging(engine) else name,
        "long_title": title(header),
        "circumstances": circumstances(header),
        "result": RESULT[run.exit_code()],
        "meaning": MEANING[run.exit_code()],
        "exit": run.exit_code(),
        "summary": summary(run),
        "complaints": list(complaints(run)),
        "counts": outcomes(run),
        "total": len(run.run.records),
        "complete": run.complete,
        "in_progress": run.run.in_progress,
        "expected": int(header.get("cases", 0)),
        "causes": [_cause(cause, cause.level, run) for cause in run.causes],
        "known": [_cause(cause, "known", run) for cause in run.known],
        "kinds": list(kinds(run.causes)),
        "introduction": introduction(run) if met(run.causes) else "",
        "ids": ids_line(met(run.causes)),
        "met": [
            (run.causes.index(cause) + 1, brief_line(cause, header), repro(cause.case, header))
            for cause in met(run.causes)
        ],
        "gaps": {name: [gap_line(gap) for gap in run.gaps if gap.applies == applies] for name, applies in GAPS.items()},
        "environment": environment,
        "seconds": footer.get("seconds"),
        "statistics": statistics_of(run.run, sources(run)),
    }


def _cause(cause: Cause, level: str, run: RunSummary) -> dict[str, Any]:
    headline = next(r for r in run.run.records if r.id == cause.case)
    details = {
        name: "\n".join(detail_lines(value))
        for name, value in headline.failure.get("details", {}).items()
        if name != SAVED and str(value) not in cause.message  # else it is read twice
    }
    return {
        "level": level,
        "clause": cause.clause,
        "headline": cause.headline,
        "norm": cause.norm,
        "message": cause.message,
        "facts": [*facts(cause), *(f"{name}: {text}" for name, text in details.items() if _short(text))],
        "case": cause.case,
        "command": repro(cause.case, run.run.header),
        "examples": [
            {name: str(example.get(name, "")) for name in ("index", "expected", "got")}
            for example in headline.failure.get("examples", ())[:EXAMPLES]
        ],
        "details": {name: text for name, text in details.items() if not _short(text)},
        "extent": plural(len(cause.cases), "failing case")
        + (f", {plural(len(cause.consequences), 'consequence')}" if cause.consequences else ""),
        "cases": list(cause.cases),
        "consequences": list(cause.consequences),
    }


def _short(text: str) -> bool:
    """Return True for a detail that is shown in its place, and not behind a button."""
    return len(text) <= SHORT and "\n" not in text


def _case_rows(number: int, run: RunSummary) -> Iterator[list[Any]]:
    """Yield rows of the list of all cases, as compact as can be: run, id, outcome, seconds, message, reach."""
    found = sources(run)
    for r in run.run.records:
        yield [number, r.id, shown(r), round(r.seconds, 3), message_of(r, found)[:MESSAGE], r.reach]


def _static(report: Mapping[str, Any]) -> dict[str, Any]:
    findings = report.get("findings", [])
    return {
        "tree": str(report.get("tree", "")),
        "counts": Counter(str(finding.get("level", "")) for finding in findings),
        "findings": [finding for finding in findings if finding.get("level") != "note"],
        "notes": sum(finding.get("level") == "note" for finding in findings),
    }

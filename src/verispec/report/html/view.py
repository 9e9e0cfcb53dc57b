"""Arrange runs for the page: plain values, in the order and in the words that the template shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from verispec import exits
from verispec.cases.glosses import GLOSSES
from verispec.report.brief import CONTRACTS, INSTALL, TITLE, brief_fields, ids_line, introduction, met, packaging
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
from verispec.run.record import SAVED, SILENT, Record

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
OWN_PAGE = ("excludes", "statistics", "budget", "untested", "environment", "parameters")
"""Sections that the index of a site leaves to the pages of the runs."""
MESSAGE = 400
"""Characters of a message in the list of all cases, which must stay small for 10,000 of them."""


def page_of(
    summaries: Sequence[RunSummary], findings: Sequence[Mapping[str, Any]], diff: RunDiff | None = None
) -> dict[str, Any]:
    """Return everything that the template shows."""
    runs = [_run(summary) for summary in summaries]
    names = Counter(run["title"] for run in runs)
    parameters = _parameters(record for s in summaries for record in s.run.records if record.failed)
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
        "several": len(runs) > 1,
        "errors": any(run["causes"] for run in runs),
        "meanings": [(RESULT[code], MEANING[code]) for code in RESULT],
        "own_page": OWN_PAGE,
        "matrix": [row for row in rows if not row["absent"]],
        "absent": [row["op"] for row in rows if row["absent"]],
        "parameters": parameters,
        "data": _data([run["title"] for run in runs], summaries),
        "static": [_static(report) for report in findings],
        "diff": _diff(diff) if diff else None,
        "sections": list(_sections(len(runs) > 1, bool(diff), bool(findings), bool(parameters))),
    }


def _sections(several: bool, diff: bool, static: bool, parameters: bool) -> Iterator[tuple[str, str]]:
    """Yield the sections of a page in their order: anchor and name. Of several runs, the comparison comes first."""
    if diff:
        yield "difference", "Difference"
    first = [("causes", "Causes"), ("matrix", "By op")]
    yield from reversed(first) if several else first
    if static:
        yield "static", "Source findings"
    yield "cases", "All cases"
    yield "excludes", "What a pass excludes"
    yield "statistics", "Evidence"
    yield "budget", "Budget"
    yield "untested", "Not tested"
    yield "environment", "Environment"
    if parameters:
        yield "parameters", "Parameters"
    yield "reading", "How to read"


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
        "state": {exits.GOOD: "pass", exits.BAD: "fail"}.get(run.exit_code(), "open"),
        "tallies": _tallies(run),
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
            (run.causes.index(cause) + 1, brief_fields(cause, header), repro(cause.case, header))
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
        if name not in (SAVED, *SILENT) and str(value) not in cause.message  # else it is read twice
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


def _data(titles: Sequence[str], summaries: Sequence[RunSummary]) -> dict[str, Any]:
    """Return the data of the list of all cases, which must stay small: each text once, and numbers of texts per case.

    A case is a list: run, then the numbers of id, outcome, message and reach, then seconds.
    """
    texts: dict[str, int] = {}
    rows = [
        [number, *(texts.setdefault(text, len(texts)) for text in named), seconds]
        for number, summary in enumerate(summaries)
        for named, seconds in _cases(summary)
    ]
    return {"runs": titles, "texts": list(texts), "cases": rows}


def _cases(run: RunSummary) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield id, outcome, message and reach of each case, and its seconds."""
    found = sources(run)
    for r in run.run.records:
        yield (r.id, shown(r), message_of(r, found)[:MESSAGE], r.reach), round(r.seconds, 2)


def _tallies(run: RunSummary) -> list[tuple[str, str]]:
    """Return the counts of a run's row in the table of runs, each with the name of its column."""
    levels = Counter(cause.level for cause in run.causes)
    return [
        ("errors", f"{levels['error']:,}"),
        ("notes", f"{levels['note']:,}"),
        ("failing cases", f"{run.failures:,}"),
        ("decided", f"{len(run.run.records) - run.undecided - run.absent:,}"),
        ("not tested", f"{run.undecided:,}"),
        ("not applicable", f"{run.absent:,}"),
    ]


def _static(report: Mapping[str, Any]) -> dict[str, Any]:
    findings = report.get("findings", [])
    return {
        "tree": str(report.get("tree", "")),
        "counts": Counter(str(finding.get("level", "")) for finding in findings),
        "findings": [finding for finding in findings if finding.get("level") != "note"],
        "notes": sum(finding.get("level") == "note" for finding in findings),
    }

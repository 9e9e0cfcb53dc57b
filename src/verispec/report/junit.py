"""JUnit XML of a run for CI systems: one suite per op, one test per case, and one for a fault of the run itself."""

from __future__ import annotations

from itertools import groupby
from xml.etree import ElementTree

from verispec import exits
from verispec.report.text import complaints, summary
from verispec.report.verdict import RunSummary
from verispec.run.record import Record
from verispec.terminal import printable

RUN = "the run itself"
"""Name of the test that fails where a run is bad or cannot tell and its cases alone do not show it."""


def as_junit(verdict: RunSummary) -> str:
    """Return the run as JUnit XML."""
    root = ElementTree.Element("testsuites", name=f"verispec {verdict.run.header['engine']['asked']}")
    by_subject = sorted(verdict.run.records, key=lambda r: (r.case.suite, r.case.subject))
    for (suite, subject), group in groupby(by_subject, key=lambda r: (r.case.suite, r.case.subject)):
        records = list(group)
        results = [_result(record) for record in records]
        element = ElementTree.SubElement(
            root,
            "testsuite",
            name=f"{suite}/{subject}",
            tests=str(len(records)),
            failures=str(results.count("failure")),
            errors=str(results.count("error")),
            skipped=str(results.count("skipped")),
            time=f"{sum(r.seconds for r in records):.3f}",
        )
        for record, result in zip(records, results, strict=True):
            _case(element, record, result)
    if said := _faults_of_the_run(verdict):
        element = ElementTree.SubElement(
            root, "testsuite", name=RUN, tests="1", failures="0", errors="1", skipped="0", time="0.000"
        )
        case = ElementTree.SubElement(element, "testcase", classname=RUN, name=RUN, time="0.000")
        told = ElementTree.SubElement(case, "error", message=printable(said[0]), type="run")
        told.text = "\n".join(map(printable, said))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _faults_of_the_run(verdict: RunSummary) -> list[str]:
    """Return the faults of the run beside its failing cases; CI systems read the file without the exit code."""
    seen = {_result(record) for record in verdict.run.records}
    shown = verdict.complete and not seen.isdisjoint({"failure", "error"})
    if verdict.exit_code() == exits.GOOD or (
        shown and not (verdict.shortfalls or verdict.unknown or verdict.unmatched)
    ):
        return []
    return [summary(verdict), *complaints(verdict)]


def _result(record: Record) -> str:
    if record.outcome in ("fail", "crash", "timeout", "xpass"):
        return "failure"
    if record.outcome == "error":
        return "error"
    return "" if record.outcome == "pass" else "skipped"


def _case(suite: ElementTree.Element, record: Record, result: str) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", classname=suite.get("name", ""), name=printable(record.id), time=f"{record.seconds:.3f}"
    )
    if result:
        message = "expected to fail, passes" if record.outcome == "xpass" else record.message
        told = ElementTree.SubElement(case, result, message=printable(message))
        if result != "skipped":
            told.set("type", record.kind or record.outcome)
        if record.reach:
            told.text = printable(f"reached in production: {record.reach}")

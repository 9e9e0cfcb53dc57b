"""JUnit XML of a run for CI systems: one test suite per op, one test per case."""

from __future__ import annotations

import re
from itertools import groupby
from xml.etree import ElementTree

from verispec.report.verdict import RunSummary
from verispec.run.record import Record

_CONTROL = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot represent but an engine may print."""


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
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _result(record: Record) -> str:
    if record.outcome in ("fail", "crash", "timeout", "xpass"):
        return "failure"
    if record.outcome == "error":
        return "error"
    return "" if record.outcome == "pass" else "skipped"


def _case(suite: ElementTree.Element, record: Record, result: str) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", classname=suite.get("name", ""), name=_clean(record.id), time=f"{record.seconds:.3f}"
    )
    if result:
        message = "expected to fail, passes" if record.outcome == "xpass" else record.message
        told = ElementTree.SubElement(case, result, message=_clean(message))
        if result != "skipped":
            told.set("type", record.kind or record.outcome)
        if record.reach:
            told.text = _clean(f"reached: {record.reach}")


def _clean(text: str) -> str:
    return _CONTROL.sub("?", text)

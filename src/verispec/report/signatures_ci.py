"""Findings for continuous integration: GitHub's annotations and JUnit's XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from verispec.report.signatures import NOTHING, SignatureReport, compared
from verispec.static import rules
from verispec.static.finding import Finding, Level
from verispec.terminal import printable

COMMANDS = {Level.ERROR: "error", Level.WARNING: "warning", Level.NOTE: "notice"}


def as_github(outcome: SignatureReport) -> str:
    """Return one workflow command per finding, which GitHub shows beside the changed lines.

    One more says that nothing was compared: a green check would look as if all was well.
    """
    lines = [_annotation(finding) for finding in outcome.placed()]
    if "kernels" in outcome.stats and compared(outcome) == NOTHING:
        lines.append(f"::notice title=verispec signatures::{NOTHING}; to test values: verispec run")
    return "\n".join(lines)


def _annotation(finding: Finding) -> str:
    properties = {
        "file": finding.location.path,
        "line": str(finding.location.line),
        "col": str(finding.location.column),
        "title": f"{finding.rule} {finding.symbol}",
    }
    said = ",".join(f"{name}={_escape(value, ':,')}" for name, value in properties.items())
    return f"::{COMMANDS[finding.level]} {said}::{_escape(_body(finding))}"


def _escape(text: str, more: str = "") -> str:
    """Percent-encode the characters that end a workflow command or one of its properties."""
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return printable(text)


def _body(finding: Finding) -> str:
    lines = [finding.message]
    lines += [f"{side.label} ({side.location}): {side.text}" for side in finding.sides]
    lines += [f"Fix: {finding.fix}"] if finding.fix else []
    return "\n".join(lines)


def as_junit(outcome: SignatureReport) -> str:
    """Return JUnit XML: one test case per finding, and one passed test case per rule without findings.

    A finding that counts for the exit code is a failed test case.
    """
    suite = ET.Element("testsuite", name="verispec signatures")
    silent = set(rules.names()) - {finding.rule for finding in outcome.findings}
    for finding in outcome.placed():
        place = printable(str(finding.location))
        name = printable(f"{finding.symbol} at {place}")
        case = ET.SubElement(
            suite, "testcase", classname=finding.rule, name=name, file=printable(finding.location.path)
        )
        if outcome.fails(finding):
            element = ET.SubElement(case, "failure", type=finding.level.value, message=printable(finding.message))
        else:
            element = ET.SubElement(case, "system-out")
        element.text = printable(f"{finding.level.value}: {_body(finding)}")
    for rule in sorted(silent):
        ET.SubElement(suite, "testcase", classname=rule, name=rules.load(rule).title)
    if outcome.diagnostics:
        said = ET.SubElement(suite, "system-err")
        said.text = printable("\n".join(map(str, outcome.diagnostics)))
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", "0")
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True)

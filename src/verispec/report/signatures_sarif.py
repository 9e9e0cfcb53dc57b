"""Findings as SARIF 2.1.0, the format that code scanning services and editors read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from verispec import __version__, exits
from verispec.errors import Diagnostic
from verispec.report.signatures import SignatureReport
from verispec.static import rules
from verispec.static.finding import Finding, Location

SCHEMA_URL = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "%SRCROOT%"
FINGERPRINT = "verispec/v1"


def as_sarif(outcome: SignatureReport) -> str:
    """Return the report as SARIF 2.1.0 text."""
    known = rules.names()
    driver = {
        "name": "verispec",
        "version": __version__,
        "semanticVersion": __version__,
        "informationUri": "https://github.com/verispec/verispec",
        "rules": [_rule(rule_id) for rule_id in known],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, known) for finding in outcome.placed()],
        "invocations": [
            {
                "executionSuccessful": outcome.exit_code != exits.CANNOT_TELL,
                "exitCode": outcome.exit_code,
                "toolExecutionNotifications": [_notification(diagnostic) for diagnostic in outcome.diagnostics],
            }
        ],
        "properties": {"tree": _name(outcome.tree), "core": outcome.core, "since": outcome.since},
    }
    return json.dumps({"$schema": SCHEMA_URL, "version": "2.1.0", "runs": [run]}, indent=2)


def _name(tree: str) -> str:
    """Return the name of a tree; an absolute path names a machine, not a tree."""
    return Path(tree).name if Path(tree).is_absolute() else tree


def _rule(rule_id: str) -> dict[str, Any]:
    rule = rules.load(rule_id)
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"{rule.why}\n\n{rule.example}\n\nFix: {rule.fix}"},
        "defaultConfiguration": {"level": rule.level.value},
    }


def _result(finding: Finding, known: tuple[str, ...]) -> dict[str, Any]:
    place = _location(finding.location)
    place["logicalLocations"] = [{"fullyQualifiedName": finding.symbol}]
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "level": finding.level.value,
        "message": {"text": finding.message + (f" Fix: {finding.fix}" if finding.fix else "")},
        "locations": [place],
        "relatedLocations": [
            {**_location(side.location), "id": number, "message": {"text": f"{side.label}: {side.text}"}}
            for number, side in enumerate(finding.sides)
        ],
        "partialFingerprints": {FINGERPRINT: finding.fingerprint},
    }
    if finding.rule in known:
        result["ruleIndex"] = known.index(finding.rule)
    return result


def _location(location: Location) -> dict[str, Any]:
    region = {"startLine": location.line, "startColumn": location.column}
    if location.end_line is not None:
        region["endLine"] = location.end_line
    artifact = {"uri": quote(location.path), "uriBaseId": ROOT}
    return {"physicalLocation": {"artifactLocation": artifact, "region": region}}


def _notification(diagnostic: Diagnostic) -> dict[str, Any]:
    return {"level": "warning", "descriptor": {"id": diagnostic.code}, "message": {"text": str(diagnostic)}}

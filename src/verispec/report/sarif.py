"""A run as SARIF 2.1.0: one result per cause, one rule per clause."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from verispec import __version__, exits
from verispec.report.cause import Cause
from verispec.report.local_place import place_of
from verispec.report.signatures_sarif import ROOT, SCHEMA_URL
from verispec.report.text import complaints, facts, repro
from verispec.report.verdict import RunSummary

_LEVEL = {"error": "error", "note": "note"}


def as_sarif(summary: RunSummary) -> str:
    """Return the run as SARIF; known failures are suppressed results, with the issues that track them."""
    causes = [*summary.causes, *summary.known]
    rules = {cause.clause: cause.rule for cause in causes}
    clauses = sorted(rules)
    run = {
        "tool": {
            "driver": {
                "name": "verispec",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(clause, rules[clause]) for clause in clauses],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [_result(cause, clauses, summary) for cause in causes],
        "invocations": [
            {
                "executionSuccessful": summary.exit_code() != exits.CANNOT_TELL,
                "exitCode": summary.exit_code(),
                "toolExecutionNotifications": [
                    {"level": "warning", "message": {"text": line}} for line in complaints(summary)
                ],
            }
        ],
        "properties": {"engine": summary.run.header["engine"]["asked"], "counts": dict(summary.counts)},
    }
    return json.dumps({"$schema": SCHEMA_URL, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(clause: str, text: str) -> dict[str, Any]:
    return {"id": clause, "shortDescription": {"text": text or clause}, "help": {"text": f"verispec explain {clause}"}}


def _location(cause: Cause) -> dict[str, Any]:
    """Return the ops of a cause, and the place of their kernel where it is known."""
    found: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": name} for name in cause.subjects]}
    if place := place_of(cause):
        file, line, is_below = place
        artifact = {"uri": quote(file)} | ({"uriBaseId": ROOT} if is_below else {})
        found["physicalLocation"] = {"artifactLocation": artifact, "region": {"startLine": line}}
    return found


def _result(cause: Cause, clauses: list[str], summary: RunSummary) -> dict[str, Any]:
    text = "\n".join([cause.message, *facts(cause), repro(cause.case, summary.run.header)])
    known = cause in summary.known
    return {
        "ruleId": cause.clause,
        "ruleIndex": clauses.index(cause.clause),
        "level": _LEVEL[cause.level],
        "message": {"text": text},
        "locations": [_location(cause)],
        "partialFingerprints": {"verispec/case": cause.case},
        "suppressions": [{"kind": "external", "justification": issue} for issue in cause.issues] if known else [],
    }

"""A file of accepted findings, by fingerprint: they are left out until they are gone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from verispec.errors import Diagnostic, VerispecError
from verispec.static.finding import Finding

FORMAT = "verispec/baseline/1"


def read_baseline(path: Path) -> frozenset[str]:
    """Return the fingerprints of the baseline `path`.

    Raises:
        VerispecError: V-BASELINE, the file cannot be read.
    """
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
        if written["format"] != FORMAT:
            raise ValueError(f"its format is {written['format']!r}, expected {FORMAT!r}")
        return frozenset(str(entry["fingerprint"]) for entry in written["findings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise VerispecError(
            "V-BASELINE",
            "the baseline cannot be read",
            where=str(path),
            cause=f"{type(error).__name__}: {error}",
            hint=f"write it with: verispec signatures TREE --write-baseline {path}",
        ) from error


def as_baseline(findings: Iterable[Finding]) -> str:
    """Return the text of a baseline that accepts `findings`."""
    entries = [
        {"fingerprint": f.fingerprint, "rule": f.rule, "symbol": f.symbol, "message": f.message} for f in findings
    ]
    entries.sort(key=lambda entry: (entry["rule"], entry["symbol"], entry["fingerprint"]))
    return json.dumps({"format": FORMAT, "findings": entries}, indent=2) + "\n"


def without_accepted(
    findings: Iterable[Finding], accepted: frozenset[str], where: str
) -> tuple[tuple[Finding, ...], list[Diagnostic]]:
    """Return the findings that are not `accepted`, and a diagnostic for entries that match nothing any more.

    Args:
        findings: findings of a tree.
        accepted: fingerprints of the baseline.
        where: path of the baseline, for the diagnostic.
    """
    findings = tuple(findings)
    stale = accepted - {finding.fingerprint for finding in findings}
    problems = []
    if stale:
        shown = ", ".join(sorted(stale)[:3]) + (f" and {len(stale) - 3} more" if len(stale) > 3 else "")
        problems.append(
            Diagnostic("V-BASELINE-STALE", f"no finding has the fingerprint {shown}", where, hint="write it anew")
        )
    return tuple(finding for finding in findings if finding.fingerprint not in accepted), problems

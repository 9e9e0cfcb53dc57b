"""Read the inputs of the page: results files, and reports of the static checker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verispec.errors import VerispecError
from verispec.report.verdict import RunSummary, summarise
from verispec.run import runfile


def read_all(files: Sequence[Path]) -> tuple[list[RunSummary], list[dict[str, Any]]]:
    """Return the runs and the reports of the static checker among `files`.

    Raises:
        VerispecError: V-RUN-READ or V-RUN-FORMAT for a file that is neither, V-REPORT-EMPTY without any run.
    """
    runs: list[RunSummary] = []
    findings: list[dict[str, Any]] = []
    for path in files:
        if (static := _static_report(path)) is not None:
            findings.append(static)
        else:
            runs.append(summarise(runfile.read(path)))
    if not runs:
        raise VerispecError("V-REPORT-EMPTY", "no results file among the files given", hint="add one of 'verispec run'")
    return runs, findings


def _static_report(path: Path) -> dict[str, Any] | None:
    """Return the output of ``verispec signatures --json`` in `path`, or None for anything else."""
    if path.suffix != ".json":
        return None
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    known = isinstance(loaded, dict) and str(loaded.get("format", "")).startswith("verispec/signatures/")
    return loaded if known else None

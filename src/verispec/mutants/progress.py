"""Progress of a campaign, on stderr: the results that its process has written, counted now and then."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from verispec.mutants.model import Verdict

EVERY = 10.0
"""Seconds between two lines."""
UNKILLED = (Verdict.SURVIVED, Verdict.NOT_REACHED, Verdict.CRASHED)


def wait(process: subprocess.Popen[bytes], results: Path, total: int, before: int) -> int:
    """Wait for the process that writes `results`, tell how far it is, and return its exit code.

    Args:
        process: process that tests mutants, or that measures cases without one.
        results: file to which it appends a JSON line for each mutant or case.
        total: number of mutants that it tests; 0 if it measures cases.
        before: number of lines that the file had when the process began.
    """
    began = time.monotonic()
    while True:
        try:
            return process.wait(EVERY)
        except subprocess.TimeoutExpired:
            records = records_of(results)[before:]
            seconds = f"{time.monotonic() - began:,.0f} s"
            if total:
                unkilled = sum(record.get("verdict") in UNKILLED for record in records)
                text = f"{len(records):,} of {total:,} mutants, {unkilled:,} without a failing case, {seconds}"
            else:
                text = f"measuring the cases without a mutant: {len(records):,} so far, {seconds}"
            print(text, file=sys.stderr, flush=True)


def records_of(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file that another process writes; a last line that is not whole is left out."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]

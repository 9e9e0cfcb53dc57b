"""Results files for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verispec.run import runfile
from verispec.run.plan import Plan
from verispec.run.record import Record

ENGINE = {"name": "vllm", "version": "0.32.0", "platform": "cpu", "device": "cpu", "details": {}, "digest": ""}
CASES = [Record("sampler/x:EXP-1:b=1", "pass", 0.5), Record("sampler/x:EXP-2", "fail", failure={"kind": "value"})]


def header(**plan: Any) -> dict[str, Any]:
    return runfile.make_header(Plan("vllm", **plan), ENGINE, 2, (), ["verispec", "run"])


def write(path: Path, *records: Record, **plan: Any) -> runfile.Writer:
    """Return a writer that has written a header and these records (by default `CASES`), and still holds its lock."""
    writer = runfile.Writer(path)
    writer.begin(header(**plan))
    for record in records or CASES:
        writer.add(record)
    return writer
